// RUN: not ditto-opt -p unroll --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'unroll{factor=3}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'unroll{factors=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'unrol{factor=4}' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'unroll,unroll' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'unroll{tail=clmp}' %s 2>&1 | FileCheck %s --check-prefix=TAIL
// RUN: not ditto-opt -p 'unroll{tail=clamp},unroll' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'unroll{tail=clamp}' --split-input-file %s 2>&1 | FileCheck %s

// VALUE:  ditto-opt: bad-plan: unroll: factor=3 is not one of (1, 2, 4, 8, 16)
// OPTION: ditto-opt: bad-plan: unroll: no option 'factors'; did you mean 'factor'?; it has factor, tail
// TYPO:   ditto-opt: bad-plan: no pass is named 'unrol'; did you mean 'unroll'?
// TAIL:   ditto-opt: bad-plan: unroll: tail=clmp is not one of ('loop', 'clamp', 'halves')
// TWICE:  ditto-opt: not-applicable: unroll: does not go with the innermost reduction unrolled

// Unrolls once, and not twice.
func.func @registers(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %c0 to %n step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %x[%p] : memref<?xf32>
      %s1 = arith.addf %a, %v : f32
      scf.yield %s1 : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: unroll: needs reductions in registers, parallel loops outside them
func.func @memory(%x: memref<?x?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %a = memref.load %x[%i, %j] : memref<?x?xf32>
      %b = memref.load %y[%i] : memref<?xf32>
      %s = arith.addf %b, %a : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: unroll: there is no reduction
func.func @no_reduction(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: unroll: there is no loop nest
func.func @no_nest() {
  return
}
