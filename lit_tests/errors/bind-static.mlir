// A size that the types fix does not bend to what is bound.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind A=%S/../Inputs/small.mtx 2>&1 | FileCheck %s --check-prefix=STATIC
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --size M=9 2>&1 | FileCheck %s --check-prefix=SIZE

// STATIC: sparseditto: bad-input: what is bound to 'A' gives size 3, but the type of 'A' gives 8 (dimension 0 of 'A', dimension 0 of 'y')
// SIZE:   sparseditto: bad-input: --size M gives size 9, but the type of 'A' gives 8 (dimension 0 of 'A', dimension 0 of 'y')
func.func @spmv(%A: tensor<8x8xf32> {ditto.sparse}, %x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<8x8xf32>, tensor<8xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
