// RUN: not ditto-opt -p 'fuse-multiply-add{fast=true}' %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'fuse-multiply' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not sparseditto compile %S/../../examples/spmv.mlir --plan 'fuse-multiply-add' 2>&1 | FileCheck %s --check-prefix=PLAN

// CHECK: ditto-opt: bad-plan: fuse-multiply-add: no option 'fast'; it has none
// TYPO:  ditto-opt: bad-plan: no pass is named 'fuse-multiply'; did you mean 'fuse-multiply-add'?
// PLAN:  sparseditto: bad-plan: 'fuse-multiply-add' is a lowering pass, which the pipeline runs by itself
func.func @f() {
  return
}
