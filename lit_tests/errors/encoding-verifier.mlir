// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t 2>&1 | FileCheck %s

// CHECK: sparseditto: bad-input: {{.*}}encoding-verifier.mlir:[[#@LINE+1]]:23: expected compressed or loose_compressed level before singleton level
#ELL = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : singleton)}>
func.func @spmv(%A: tensor<?x?xf32, #ELL>) {
  return
}
