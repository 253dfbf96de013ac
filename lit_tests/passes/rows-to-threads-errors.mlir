// RUN: not ditto-opt -p rows-to-threads --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'rows-to-threads{lanes=8}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'rows-to-thread' %s 2>&1 | FileCheck %s --check-prefix=TYPO

// OPTION: ditto-opt: bad-plan: rows-to-threads: no option 'lanes'; it has none
// TYPO:   ditto-opt: bad-plan: no pass is named 'rows-to-thread'; did you mean 'rows-to-threads'?

// CHECK: ditto-opt: not-applicable: rows-to-threads: there is no loop nest
func.func @no_nest() {
  return
}

// -----

// CHECK: ditto-opt: not-applicable: rows-to-threads: there is no function with a body
func.func private @declaration()

// -----

// The outermost loop is a reduction: no output index depends on it.
// CHECK: ditto-opt: not-applicable: rows-to-threads: needs a parallel loop outside all others, not mapped yet
func.func @reduction(%x: memref<?xf32>, %y: memref<f32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    %b = memref.load %y[] : memref<f32>
    %s = arith.addf %b, %a : f32
    memref.store %s, %y[] : memref<f32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: rows-to-threads: needs a parallel loop outside all others, not mapped yet
func.func @mapped(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  scf.forall (%i) in (%n) {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
  } {mapping = [#gpu.thread<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: not-applicable: rows-to-threads: the loop does not count from 0 by 1
func.func @stride(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %n step %c2 {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// The sum is carried through memory.
// CHECK: ditto-opt: not-applicable: rows-to-threads: needs reductions in registers, parallel loops outside them
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

// CHECK: ditto-opt: unsupported: rows-to-threads: 2 loop nests in one function
func.func @two_nests(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
  }
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: unsupported: rows-to-threads: the nest writes 2 buffers, not one
func.func @two_outputs(%x: memref<?xf32>, %y: memref<?xf32>, %z: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
    memref.store %a, %z[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: unsupported: rows-to-threads: the nest has a 'scf.parallel': only nests of counted loops over one sparse operand are compiled
func.func @parallel(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.parallel (%j) = (%c0) to (%n) step (%c1) {
      %a = memref.load %x[%j] : memref<?xf32>
      memref.store %a, %y[%i] : memref<?xf32>
    }
  }
  return
}
