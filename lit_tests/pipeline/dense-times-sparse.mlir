// C = B A: the sparse matrix's columns are the output's columns, and the dense operand is read with a stride.
// The default plan compiles that too, with and without the number of dense rows.
// RUN: sparseditto compile %s -o %t | FileCheck %s
// RUN: sparseditto compile %s -o %t --size K=8 | FileCheck %s

// CHECK: plan: set-encoding{format=csc
// CHECK: launch: product, grid ceildiv(A.lvl0,
func.func @product(%B: tensor<?x?xf32>, %A: tensor<?x?xf32> {ditto.sparse}, %C: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = linalg.matmul ins(%B, %A : tensor<?x?xf32>, tensor<?x?xf32>) outs(%C : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
