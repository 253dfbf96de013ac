// RUN: not ditto-opt -p 'mlir-arith-unsigned-when-equivalent{bits=32}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p mlir-arith-unsigned-when-equivalent %s 2>&1 | FileCheck %s

// OPTION: ditto-opt: bad-plan: mlir-arith-unsigned-when-equivalent: no option 'bits'; it has none

// CHECK: ditto-opt: not-applicable: mlir-arith-unsigned-when-equivalent: there is no loop nest
func.func @straight(%x: f32) -> f32 {
  return %x : f32
}
