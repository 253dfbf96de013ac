// C = alpha * A * B + beta * C for a sparse matrix A whose storage the compiler chooses; where beta is 0, C is not read.
func.func @gemm(%alpha: f32, %A: tensor<?x?xf32> {ditto.sparse}, %B: tensor<?x?xf32>, %beta: f32, %C: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %scaled = linalg.map outs(%C : tensor<?x?xf32>) (%old: f32) {
    %0 = arith.mulf %beta, %old : f32
    linalg.yield %0 : f32
  }
  %r = linalg.generic {
    indexing_maps = [affine_map<(i, k, j) -> (i, j)>, affine_map<(i, k, j) -> (j, k)>, affine_map<(i, k, j) -> (i, k)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%A, %B : tensor<?x?xf32>, tensor<?x?xf32>) outs(%scaled : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %alpha, %0 : f32
    %2 = arith.addf %sum, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
