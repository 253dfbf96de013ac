// MLIR's own words and place, under the name of the file.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t 2>&1 | FileCheck %s
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile - -o %t < %s 2>&1 | FileCheck %s --check-prefix=STDIN

func.func @spmv(%A: tensor<?x?xf32>, %x: tensor<?xf32>) {
  // CHECK: sparseditto: bad-input: {{.*}}syntax.mlir:[[#@LINE+2]]:29: expected SSA operand
  // STDIN: sparseditto: bad-input: -:[[#@LINE+1]]:29: expected SSA operand
  %0 = linalg.matvec ins(%A, : tensor<?x?xf32>)
  return
}
