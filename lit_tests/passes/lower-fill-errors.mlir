// RUN: not ditto-opt -p 'lower-fill{threads=64}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'lower-fills' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not sparseditto compile %S/../../examples/spmv.mlir --plan 'set-encoding,lower-fill' 2>&1 | FileCheck %s --check-prefix=PLAN

// OPTION: ditto-opt: bad-plan: lower-fill: no option 'threads'; it has none
// TYPO:   ditto-opt: bad-plan: no pass is named 'lower-fills'; did you mean 'lower-fill'?
// PLAN:   sparseditto: bad-plan: 'lower-fill' is a lowering pass, which the pipeline runs by itself
func.func @f() {
  return
}
