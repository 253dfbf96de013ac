// RUN: ditto-opt -p 'vectorize{width=4}' %s | FileCheck %s
// RUN: ditto-opt -p 'vectorize{width=1}' %s | FileCheck %s --check-prefix=ONE
// RUN: ditto-opt -p 'unroll{factor=2},vectorize{width=2},canonicalize,cse' %s | FileCheck %s --check-prefix=UNROLLED

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// The column loop steps by 4, and the sum is a vector.  An entry's value is the same for all columns: it is broadcast.
// CHECK-LABEL: func.func @spmm
// CHECK:         %[[C4:.*]] = arith.constant 4 : index
// CHECK-NEXT:    scf.for %[[K:.*]] = %c0 to %c8 step %[[C4]] {
// CHECK-NEXT:      %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<4xf32>
// CHECK-NEXT:      %[[S:.*]] = scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c1 iter_args(%[[A:.*]] = %[[ZERO]]) -> (vector<4xf32>) {
// CHECK-NEXT:        %[[J:.*]] = memref.load %{{.*}} : memref<?xindex>
// CHECK-NEXT:        %[[V:.*]] = memref.load %{{.*}} : memref<?xf32>
// CHECK-NEXT:        %[[B:.*]] = vector.load %arg1[%[[J]], %[[K]]] {alignment = 16 : i64} : memref<?x8xf32>, vector<4xf32>
// CHECK-NEXT:        %[[W:.*]] = vector.broadcast %[[V]] : f32 to vector<4xf32>
// CHECK-NEXT:        %[[T:.*]] = arith.mulf %[[W]], %[[B]] : vector<4xf32>
// CHECK-NEXT:        %[[N:.*]] = arith.addf %[[A]], %[[T]] : vector<4xf32>
// CHECK-NEXT:        scf.yield %[[N]] : vector<4xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      vector.store %[[S]], %arg2[%{{.*}}, %[[K]]] {alignment = 16 : i64} : memref<?x8xf32>, vector<4xf32>

// ONE-LABEL: func.func @spmm
// ONE:         scf.for %{{.*}} = %c0 to %c8 step %c1 {
// ONE-NOT:       vector

// UNROLLED-LABEL:   func.func @spmm
// UNROLLED:           scf.for %{{.*}} = %c0 to %c8 step %c2 {
// UNROLLED:             scf.for {{.*}} iter_args(%{{.*}} = %cst) -> (vector<2xf32>) {
// UNROLLED-COUNT-2:       vector.load %arg1[%{{.*}}] {alignment = 8 : i64} : memref<?x8xf32>, vector<2xf32>
// UNROLLED-NOT:           vector.load
// UNROLLED:             } {ditto.unrolled}
func.func @spmm(%A: tensor<?x?xf32, #CSR>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c8 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x8xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}

// The old value is read as a vector too.  No load is wider than 16 bytes: four f64 are aligned to two of them.
// CHECK-LABEL: func.func @spmm_f64
// CHECK:         %[[OLD:.*]] = vector.load %arg2[%{{.*}}] {alignment = 16 : i64} : memref<?x8xf64>, vector<4xf64>
// CHECK-NEXT:    scf.for {{.*}} iter_args(%{{.*}} = %[[OLD]]) -> (vector<4xf64>) {
// CHECK:           vector.load %arg1[%{{.*}}] {alignment = 16 : i64} : memref<?x8xf64>, vector<4xf64>
// CHECK:         vector.store %{{.*}} {alignment = 16 : i64} : memref<?x8xf64>, vector<4xf64>
func.func @spmm_f64(%A: tensor<?x?xf64, #CSR>, %B: memref<?x8xf64>, %C: memref<?x8xf64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf64, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf64, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf64, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf64, #CSR> to memref<?xf64>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c8 step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x8xf64>
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %c) -> (f64) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf64>
        %b = memref.load %B[%j, %k] : memref<?x8xf64>
        %t = arith.mulf %v, %b : f64
        %n = arith.addf %a, %t : f64
        scf.yield %n : f64
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf64>
    }
  }
  return
}

// What does not depend on the column is broadcast where it meets a vector: a sum of scalars only where it is stored.
// CHECK-LABEL: func.func @scalar_sum
// CHECK:         %[[S:.*]] = scf.for {{.*}} -> (vector<4xf32>) {
// CHECK:           %[[V:.*]] = memref.load %{{.*}} : memref<?xf32>
// CHECK:           vector.broadcast %[[V]] : f32 to vector<4xf32>
// CHECK:         vector.store %[[S]]
func.func @scalar_sum(%A: tensor<?x?xf32, #CSR>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c8 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %v = memref.load %val[%p] : memref<?xf32>
        %n = arith.addf %a, %v : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}
