// y = alpha * A * x + beta * y for a sparse matrix A whose storage the compiler chooses; where beta is 0, y is not read.
func.func @gemv(%alpha: f32, %A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %beta: f32, %y: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf32>
  %empty = tensor.empty(%m) : tensor<?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %Ax = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%init : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.map ins(%Ax, %y : tensor<?xf32>, tensor<?xf32>) outs(%empty : tensor<?xf32>)
    (%sum: f32, %old: f32, %_: f32) {
      %0 = arith.mulf %alpha, %sum : f32
      %1 = arith.mulf %beta, %old : f32
      %2 = arith.addf %0, %1 : f32
      linalg.yield %2 : f32
    }
  return %r : tensor<?xf32>
}
