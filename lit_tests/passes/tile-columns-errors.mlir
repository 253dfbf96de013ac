// RUN: not ditto-opt -p 'tile-columns{width=16}' --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'tile-columns{width=12}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'tile-columns{with=16}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'tile-column' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'tile-columns{width=8},tile-columns{width=8}' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'vectorize{width=4},tile-columns{width=8}' %s 2>&1 | FileCheck %s --check-prefix=VECTORS
// RUN: not ditto-opt -p 'jam-columns{factor=2},tile-columns{width=8}' %s 2>&1 | FileCheck %s --check-prefix=JAMMED
// RUN: not ditto-opt -p 'rows-to-threads,tile-columns{width=8}' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// VALUE:   ditto-opt: bad-plan: tile-columns: width=12 is not one of (8, 16, 32, 64, 128)
// OPTION:  ditto-opt: bad-plan: tile-columns: no option 'with'; did you mean 'width'?; it has width
// TYPO:    ditto-opt: bad-plan: no pass is named 'tile-column'; did you mean 'tile-columns'?
// TWICE:   ditto-opt: not-applicable: tile-columns: does not go with all rows for one tile of columns before the next
// VECTORS: ditto-opt: not-applicable: tile-columns: does not go with vectors over the dense columns
// JAMMED:  ditto-opt: not-applicable: tile-columns: does not go with several tiles of columns in one walk
// MAPPED:  ditto-opt: not-applicable: tile-columns: needs a parallel loop outside all others, not mapped yet

// CHECK: ditto-opt: not-applicable: tile-columns: 16 columns make one tile of 16; tile them narrower
func.func @one_tile(%B: memref<?x16xf32>, %C: memref<?x16xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c16 step %c1 {
      %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %zero) -> (f32) {
        %b = memref.load %B[%p, %k] : memref<?x16xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x16xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: tile-columns: the number of columns is not known; give its size (--size K=…)
func.func @dynamic(%B: memref<?x?xf32>, %C: memref<?x?xf32>, %m: index, %columns: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %columns step %c1 {
      %b = memref.load %B[%i, %k] : memref<?x?xf32>
      memref.store %b, %C[%i, %k] : memref<?x?xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: tile-columns: needs a sequential loop over dense columns
func.func @no_columns(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: tile-columns: needs one loop over dense columns, not 2
func.func @two_columns(%B: memref<?x4x32xf32>, %C: memref<?x4x32xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c32 = arith.constant 32 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %h = %c0 to %c4 step %c1 {
      scf.for %k = %c0 to %c32 step %c1 {
        %b = memref.load %B[%i, %h, %k] : memref<?x4x32xf32>
        memref.store %b, %C[%i, %h, %k] : memref<?x4x32xf32>
      }
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: tile-columns: the loop does not count from 0 by 1
func.func @second_column(%B: memref<?x33xf32>, %C: memref<?x33xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c33 = arith.constant 33 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c1 to %c33 step %c1 {
      %b = memref.load %B[%i, %k] : memref<?x33xf32>
      memref.store %b, %C[%i, %k] : memref<?x33xf32>
    }
  }
  return
}

// -----

// The last tile would have 8 columns of its own; the other 8 may not be read while another thread stores them.
// CHECK: ditto-opt: not-applicable: tile-columns: the last tile would be narrower, and the output's old value is more than what one sum starts from; take a width that divides the columns
func.func @old_values(%B: memref<?x24xf32>, %C: memref<?x24xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c24 = arith.constant 24 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c24 step %c1 {
      %b = memref.load %B[%i, %k] : memref<?x24xf32>
      %c = memref.load %C[%i, %k] : memref<?x24xf32>
      %n = arith.mulf %b, %c : f32
      memref.store %n, %C[%i, %k] : memref<?x24xf32>
    }
  }
  return
}
