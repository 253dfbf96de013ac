// RUN: not ditto-opt -p mlir-cse %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'mlir-cse{once=true}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: ditto-opt -p cse %s

// OPTION: ditto-opt: bad-plan: mlir-cse: no option 'once'; it has none

// A step of a plan runs on a nest; upstream's pass runs on anything.
// CHECK: ditto-opt: not-applicable: mlir-cse: there is no loop nest; run sparsification and prepare-nest first
func.func @straight(%x: f32) -> f32 {
  return %x : f32
}
