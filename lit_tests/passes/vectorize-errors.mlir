// RUN: not ditto-opt -p vectorize --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'vectorize{width=3}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'vectorize{with=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'vectorise{width=4}' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'vectorize{width=2},vectorize{width=2}' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=1 share=entries},vectorize' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// VALUE:  ditto-opt: bad-plan: vectorize: width=3 is not one of (1, 2, 4, 8)
// OPTION: ditto-opt: bad-plan: vectorize: no option 'with'; did you mean 'width'?; it has width
// TYPO:   ditto-opt: bad-plan: no pass is named 'vectorise'; did you mean 'vectorize'?
// TWICE:  ditto-opt: not-applicable: vectorize: does not go with vectors over the dense columns
// MAPPED: ditto-opt: not-applicable: vectorize: does not go with rows mapped to threads or subgroups

// CHECK: ditto-opt: not-applicable: vectorize: width 4 does not divide 6 columns
func.func @six(%B: memref<?x6xf32>, %C: memref<?x6xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c6 step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x6xf32>
      %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %c) -> (f32) {
        %b = memref.load %B[%p, %k] : memref<?x6xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x6xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: vectorize: the number of columns is not known; give its size (--size K=…)
func.func @dynamic(%B: memref<?x?xf32>, %C: memref<?x?xf32>, %m: index, %columns: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %columns step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x?xf32>
      %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %c) -> (f32) {
        %b = memref.load %B[%p, %k] : memref<?x?xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x?xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: vectorize: needs a sequential loop over dense columns
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

// CHECK: ditto-opt: not-applicable: vectorize: needs reductions in registers, parallel loops outside them
func.func @memory(%B: memref<?x8xf32>, %C: memref<?x8xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %p = %c0 to %m step %c1 {
      scf.for %k = %c0 to %c8 step %c1 {
        %c = memref.load %C[%i, %k] : memref<?x8xf32>
        %b = memref.load %B[%p, %k] : memref<?x8xf32>
        %n = arith.addf %c, %b : f32
        memref.store %n, %C[%i, %k] : memref<?x8xf32>
      }
    }
  }
  return
}

// -----

// B is transposed: neighbouring columns lie a row apart.
// CHECK: ditto-opt: not-applicable: vectorize: columns are not read one beside the other
func.func @stride(%B: memref<8x?xf32>, %C: memref<?x8xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c8 step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x8xf32>
      %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %c) -> (f32) {
        %b = memref.load %B[%k, %p] : memref<8x?xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: vectorize: a loop's bounds depend on the column
func.func @triangle(%B: memref<?x8xf32>, %C: memref<?x8xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c8 step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x8xf32>
      %s = scf.for %p = %c0 to %k step %c1 iter_args(%a = %c) -> (f32) {
        %b = memref.load %B[%p, %k] : memref<?x8xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: vectorize: 'arith.index_cast' of the column has no vector form
func.func @column_number(%C: memref<?x8xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c8 step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x8xf32>
      %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %c) -> (f32) {
        %number = arith.index_cast %k : index to i32
        %b = arith.sitofp %number : i32 to f32
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: vectorize: the loop does not count from 0 by 1
func.func @second_column(%B: memref<?x9xf32>, %C: memref<?x9xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c1 to %c9 step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x9xf32>
      %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %c) -> (f32) {
        %b = memref.load %B[%p, %k] : memref<?x9xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x9xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: vectorize: tiles of columns do not begin with a whole vector of 4
func.func @tiles_of_six(%B: memref<?x24xf32>, %C: memref<?x24xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %m step %c1 {
    %first = arith.muli %i, %c6 : index
    scf.for %k = %c0 to %c8 step %c1 {
      %column = arith.addi %first, %k : index
      %b = memref.load %B[%i, %column] : memref<?x24xf32>
      memref.store %b, %C[%i, %column] : memref<?x24xf32>
    }
  }
  return
}
