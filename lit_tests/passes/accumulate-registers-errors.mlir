// RUN: not ditto-opt -p accumulate-registers --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'accumulate-registers{width=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'acumulate-registers' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'accumulate-registers,unroll,accumulate-registers' %S/../../examples/spmv.mlir 2>&1 | FileCheck %s --check-prefix=NEST

// OPTION: ditto-opt: bad-plan: accumulate-registers: no option 'width'; it has none
// TYPO:   ditto-opt: bad-plan: no pass is named 'acumulate-registers'; did you mean 'accumulate-registers'?
// NEST:   ditto-opt: not-applicable: accumulate-registers: there is no loop nest

// A CSC matrix times a vector: a stored coordinate says where each term goes.
// CHECK: ditto-opt: not-applicable: accumulate-registers: needs a parallel loop outside all others, not mapped yet
func.func @scattered_rows(%pos: memref<?xindex>, %crd: memref<?xindex>, %val: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %j = %c0 to %n step %c1 {
    %lo = memref.load %pos[%j] : memref<?xindex>
    %j1 = arith.addi %j, %c1 : index
    %hi = memref.load %pos[%j1] : memref<?xindex>
    scf.for %p = %lo to %hi step %c1 {
      %i = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      %o = memref.load %y[%i] : memref<?xf32>
      %s = arith.addf %o, %v : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}

// -----

// The same inside a loop over the columns of the output.
// CHECK: ditto-opt: not-applicable: accumulate-registers: the output is scattered: its rows come from stored coordinates of a reduction
func.func @scattered(%pos: memref<?xindex>, %crd: memref<?xindex>, %val: memref<?xf32>, %C: memref<?x8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %k = %c0 to %c8 step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %lo = memref.load %pos[%j] : memref<?xindex>
      %j1 = arith.addi %j, %c1 : index
      %hi = memref.load %pos[%j1] : memref<?xindex>
      scf.for %p = %lo to %hi step %c1 {
        %i = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %o = memref.load %C[%i, %k] : memref<?x8xf32>
        %s = arith.addf %o, %v : f32
        memref.store %s, %C[%i, %k] : memref<?x8xf32>
      }
    }
  }
  return
}

// -----

// CHECK: ditto-opt: unsupported: accumulate-registers: the output is combined by 'arith.subf', not by one of arith.addf
func.func @difference(%x: memref<?x?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %v = memref.load %x[%i, %j] : memref<?x?xf32>
      %o = memref.load %y[%i] : memref<?xf32>
      %s = arith.subf %o, %v : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: unsupported: accumulate-registers: the output's old value is not an operand of the op that combines it
func.func @scaled(%x: memref<?x?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %v = memref.load %x[%i, %j] : memref<?x?xf32>
      %o = memref.load %y[%i] : memref<?xf32>
      %h = arith.mulf %o, %v : f32
      %s = arith.addf %h, %v : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: unsupported: accumulate-registers: the output is read 2 times, not once
func.func @neighbour(%y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %o = memref.load %y[%i] : memref<?xf32>
    %v = memref.load %y[%c0] : memref<?xf32>
    %s = arith.addf %o, %v : f32
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: unsupported: accumulate-registers: the nest has 2 stores, not one
func.func @two_stores(%x: memref<?xf32>, %y: memref<?x2xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i, %c0] : memref<?x2xf32>
    memref.store %v, %y[%i, %c1] : memref<?x2xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: unsupported: accumulate-registers: 'scf.if' in the nest cannot be moved
func.func @branch(%x: memref<?x?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %below = arith.cmpi ult, %j, %i : index
      %v = scf.if %below -> (f32) {
        %w = memref.load %x[%i, %j] : memref<?x?xf32>
        scf.yield %w : f32
      } else {
        scf.yield %zero : f32
      }
      %o = memref.load %y[%i] : memref<?xf32>
      %s = arith.addf %o, %v : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: accumulate-registers: some loops are mapped already
func.func @lanes(%x: memref<?x?xf32>, %y: memref<?x8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.forall (%k) in (8) {
      %v = memref.load %x[%i, %k] : memref<?x?xf32>
      %o = memref.load %y[%i, %k] : memref<?x8xf32>
      %s = arith.addf %o, %v : f32
      memref.store %s, %y[%i, %k] : memref<?x8xf32>
    } {mapping = [#gpu.lane<linear_dim_0>]}
  }
  return
}
