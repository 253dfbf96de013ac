// C = A * B with 16-bit operands; products and sums are in f32, as the types say.  Written with bf16 it is the same.
func.func @spmm(%A: tensor<?x?xf16> {ditto.sparse}, %B: tensor<?x?xf16>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf16>
  %k = tensor.dim %B, %c1 : tensor<?x?xf16>
  %empty = tensor.empty(%m, %k) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %C = linalg.matmul ins(%A, %B : tensor<?x?xf16>, tensor<?x?xf16>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %C : tensor<?x?xf32>
}
