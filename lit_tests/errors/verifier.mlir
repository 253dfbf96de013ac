// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t 2>&1 | FileCheck %s

func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf64>) -> tensor<?xf32> {
  // CHECK: sparseditto: bad-input: {{.*}}verifier.mlir:[[#@LINE+1]]:8: 'linalg.matvec' op expected type of operand #2 ('tensor<?xf64>') to match type of corresponding result ('tensor<?xf32>')
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
