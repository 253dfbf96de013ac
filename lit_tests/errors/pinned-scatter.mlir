// A pinned CSC matrix times a vector scatters its terms; the message says that of the operand, at its place.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t 2>&1 | FileCheck %s

// CHECK: sparseditto: {{not-applicable|unsupported}}: {{.*}}scatter
#CSC = #sparse_tensor.encoding<{map = (i, j) -> (j : dense, i : compressed), posWidth = 32, crdWidth = 32}>
func.func @spmv(%A: tensor<?x?xf32, #CSC>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSC>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
