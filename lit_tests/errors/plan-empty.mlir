// An empty plan is a plan without steps: the message says what it lacks.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --plan '' -o %t 2>&1 | FileCheck %s

// CHECK: sparseditto: bad-plan: the plan gives 'A' no encoding; add set-encoding
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
