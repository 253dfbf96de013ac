// RUN: not ditto-opt -p uniform-values --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'uniform-values,uniform-values' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'slice-rows,uniform-values' %s 2>&1 | FileCheck %s --check-prefix=SLICES
// RUN: not ditto-opt -p 'vectorize-entries,uniform-values' %s 2>&1 | FileCheck %s --check-prefix=VECTORS
// RUN: not ditto-opt -p 'rows-to-threads,uniform-values' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// TWICE:   ditto-opt: not-applicable: uniform-values: does not go with one value for all entries
// SLICES:  ditto-opt: not-applicable: uniform-values: does not go with rows stored in slices
// VECTORS: ditto-opt: not-applicable: uniform-values: does not go with stored entries loaded in vectors
// MAPPED:  ditto-opt: not-applicable: uniform-values: does not go with rows mapped to threads or subgroups

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %p0 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %p0 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %p1 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %p1 : i32 to index
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%j] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#PATTERN = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// Only columns are read.
// CHECK: ditto-opt: not-applicable: uniform-values: the nest does not read the values of the matrix one by one
func.func @pattern(%A: tensor<?x?xf32, #PATTERN> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #PATTERN>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #PATTERN> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #PATTERN> to memref<?xi32>
  scf.for %i = %c0 to %m step %c1 {
    %p0 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %p0 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %p1 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %p1 : i32 to index
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
      %b = memref.load %x[%j] : memref<?xf32>
      %n = arith.addf %a, %b : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
