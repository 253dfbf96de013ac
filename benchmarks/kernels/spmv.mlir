// y = A * x for a sparse matrix A whose storage the compiler chooses; what cuSPARSE computes with alpha = 1 and beta = 0.
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf32>
  %empty = tensor.empty(%m) : tensor<?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %y = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%init : tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
