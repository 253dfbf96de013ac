// RUN: rm -rf %t
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t 2>&1 | FileCheck %s --check-prefix=SEVERAL
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry spmw -o %t 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry main -o %t 2>&1 | FileCheck %s --check-prefix=FAR
// RUN: test ! -e %t

// SEVERAL: sparseditto: bad-input: {{.*}}entry.mlir: has several functions (spmv, transposed); choose one with --entry
// TYPO:    sparseditto: bad-input: {{.*}}entry.mlir: has no function 'spmw'; did you mean 'spmv'?; it has spmv, transposed
// FAR:     sparseditto: bad-input: {{.*}}entry.mlir: has no function 'main'; it has spmv, transposed
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func @transposed(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.vecmat ins(%x, %A : tensor<?xf32>, tensor<?x?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
