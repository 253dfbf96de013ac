// RUN: not ditto-opt -p 'lower-nontemporal{level=l2}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'lower-nontemporals' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not sparseditto compile %S/../../examples/spmv.mlir --plan 'set-encoding,lower-nontemporal' 2>&1 | FileCheck %s --check-prefix=PLAN

// OPTION: ditto-opt: bad-plan: lower-nontemporal: no option 'level'; it has none
// TYPO:   ditto-opt: bad-plan: no pass is named 'lower-nontemporals'; did you mean 'lower-nontemporal'?
// PLAN:   sparseditto: bad-plan: 'lower-nontemporal' is a lowering pass, which the pipeline runs by itself
func.func @f() {
  return
}
