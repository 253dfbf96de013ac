// RUN: not ditto-opt -p 'unroll{factor=1},mlir-canonicalize' %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'mlir-canonicalize{top-down=maybe}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'mlir-canonicalize{max-iterations=1}' %s 2>&1 | FileCheck %s --check-prefix=OPTION

// VALUE: ditto-opt: bad-plan: mlir-canonicalize: top-down=maybe: say true or false
// OPTION: ditto-opt: bad-plan: mlir-canonicalize: no option 'max-iterations'; it has top-down

// A loop of one iteration goes, and with it the mark that it is unrolled.
// CHECK: ditto-opt: not-applicable: mlir-canonicalize: takes away the innermost reduction unrolled here, which other passes ask of a nest
func.func @one(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %c0 to %c1 step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %x[%p] : memref<?xf32>
      %t = arith.addf %a, %v : f32
      scf.yield %t : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
