// RUN: not ditto-opt -p 'jam-columns{factor=8}' --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'jam-columns{factor=10}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'jam-columns{factors=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'jam-column' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'jam-columns{factor=3},jam-columns' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'unroll,jam-columns' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'rows-to-threads,jam-columns' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// VALUE:    ditto-opt: bad-plan: jam-columns: factor=10 is not one of (1, 2, 3, 4, 5, 6, 7, 8, 9)
// OPTION:   ditto-opt: bad-plan: jam-columns: no option 'factors'; did you mean 'factor'?; it has factor
// TYPO:     ditto-opt: bad-plan: no pass is named 'jam-column'; did you mean 'jam-columns'?
// TWICE:    ditto-opt: not-applicable: jam-columns: does not go with
// UNROLLED: ditto-opt: not-applicable: jam-columns: does not go with the innermost reduction unrolled
// MAPPED:   ditto-opt: not-applicable: jam-columns: does not go with rows mapped to threads or subgroups

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: jam-columns: 9 steps of the column loop make 5 tiles of 2, not 8
func.func @nine(%A: tensor<?x?xf32, #CSR>, %B: memref<?x9xf32>, %C: memref<?x9xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 9 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x9xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x9xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: jam-columns: the number of columns is not known; give its size (--size K=…)
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

// CHECK: ditto-opt: not-applicable: jam-columns: a loop or a condition depends on the column
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

// CHECK: ditto-opt: not-applicable: jam-columns: needs a sequential loop over dense columns
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
