// RUN: ditto-opt -p 'jam-columns{factor=2},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'vectorize{width=2},jam-columns{factor=2},canonicalize,cse' %s | FileCheck %s --check-prefix=VECTORS
// RUN: ditto-opt -p 'jam-columns{factor=4},rows-to-subgroups{lanes=2},unroll{factor=2},canonicalize,cse' %s | FileCheck %s --check-prefix=LANES

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Two tiles of four columns: one walk over the entries carries a sum of each, and loads an entry once for both.
// CHECK-LABEL: func.func @spmm
// CHECK:         scf.for %[[K:.*]] = %c0 to %c4 step %c1 {
// CHECK-NEXT:      %[[K1:.*]] = arith.addi %[[K]], %c4
// CHECK-NEXT:      %[[S:.*]]:2 = scf.for %[[P:.*]] = %{{.*}} to %{{.*}} step %c1 iter_args(%[[A:.*]] = %cst, %[[A1:.*]] = %cst) -> (f32, f32) {
// CHECK-NEXT:        %[[J:.*]] = memref.load %{{.*}}[%[[P]]] : memref<?xindex>
// CHECK-NEXT:        %[[V:.*]] = memref.load %{{.*}}[%[[P]]] : memref<?xf32>
// CHECK-NEXT:        %[[B:.*]] = memref.load %arg1[%[[J]], %[[K]]]
// CHECK-NEXT:        %[[B1:.*]] = memref.load %arg1[%[[J]], %[[K1]]]
// CHECK-NEXT:        %[[T:.*]] = arith.mulf %[[V]], %[[B]]
// CHECK-NEXT:        %[[T1:.*]] = arith.mulf %[[V]], %[[B1]]
// CHECK-NEXT:        %[[N:.*]] = arith.addf %[[A]], %[[T]]
// CHECK-NEXT:        %[[N1:.*]] = arith.addf %[[A1]], %[[T1]]
// CHECK-NEXT:        scf.yield %[[N]], %[[N1]]
// CHECK-NEXT:      }
// CHECK-NEXT:      memref.store %[[S]]#0, %arg2[%{{.*}}, %[[K]]]
// CHECK-NEXT:      memref.store %[[S]]#1, %arg2[%{{.*}}, %[[K1]]]

// Vectors of two: the tiles are two vectors long.
// VECTORS-LABEL: func.func @spmm
// VECTORS:         scf.for %[[K:.*]] = %c0 to %c4 step %c2 {
// VECTORS-NEXT:      %[[K1:.*]] = arith.addi %[[K]], %c4
// VECTORS:           -> (vector<2xf32>, vector<2xf32>) {
// VECTORS:             vector.load %arg1[%[[J:.*]], %[[K]]]
// VECTORS-NEXT:        vector.load %arg1[%[[J]], %[[K1]]]

// Lanes then share a tile, and the walk can be unrolled.
// LANES-LABEL:   func.func @spmm
// LANES:           scf.forall (%[[LANE:.*]]) in (2) {
// LANES:             arith.addi %[[LANE]], %c2
// LANES:             arith.addi %[[LANE]], %c4
// LANES:             arith.addi %[[LANE]], %c6
// LANES:             scf.for {{.*}} -> (f32, f32, f32, f32) {
// LANES-COUNT-8:       memref.load %arg1
// LANES:             } {ditto.unrolled}
func.func @spmm(%A: tensor<?x?xf32, #CSR>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 8 : index
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
