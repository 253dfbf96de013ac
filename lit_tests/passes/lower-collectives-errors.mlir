// RUN: not ditto-opt -p 'lower-collectives{width=16}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'lower-collective' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not sparseditto compile %S/../../examples/spmv.mlir --plan 'set-encoding,lower-collectives' 2>&1 | FileCheck %s --check-prefix=PLAN

// OPTION: ditto-opt: bad-plan: lower-collectives: no option 'width'; it has none
// TYPO:   ditto-opt: bad-plan: no pass is named 'lower-collective'; did you mean 'lower-collectives'?
// PLAN:   sparseditto: bad-plan: 'lower-collectives' is a lowering pass, which the pipeline runs by itself
func.func @f() {
  return
}
