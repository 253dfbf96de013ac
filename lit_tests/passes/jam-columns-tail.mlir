// RUN: ditto-opt -p 'jam-columns{factor=2},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'jam-columns{factor=3},canonicalize,cse' %s | FileCheck %s --check-prefix=EVEN
// RUN: ditto-opt -p 'jam-columns{factor=2},rows-to-subgroups{lanes=16 groups=2},canonicalize,cse' %s | FileCheck %s --check-prefix=GROUPS
// RUN: ditto-opt -p 'segment-rows,jam-columns{factor=2},canonicalize,cse' %s | FileCheck %s --check-prefix=SEGMENTS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Nine columns in two tiles of five: the second one is columns 4 to 8, and column 4 is stored by the first tile only.
// All loads are at columns that exist, a constant apart.
// CHECK-LABEL: func.func @spmm
// CHECK:         scf.for %[[K:.*]] = %c0 to %c5 step %c1 {
// CHECK-NEXT:      %[[NEW:.*]] = arith.cmpi uge, %[[K]], %c1
// CHECK-NEXT:      %[[K1:.*]] = arith.addi %[[K]], %c4
// CHECK-NEXT:      %[[S:.*]]:2 = scf.for
// CHECK:             memref.load %arg1[%[[J:.*]], %[[K]]]
// CHECK-NEXT:        memref.load %arg1[%[[J]], %[[K1]]]
// CHECK:           memref.store %[[S]]#0, %arg2[%{{.*}}, %[[K]]]
// CHECK-NEXT:      scf.if %[[NEW]] {
// CHECK-NEXT:        memref.store %[[S]]#1, %arg2[%{{.*}}, %[[K1]]]
// CHECK-NEXT:      }

// Three tiles of three are whole: nothing is guarded.
// EVEN-LABEL:    func.func @spmm
// EVEN:            scf.for %[[K:.*]] = %c0 to %c3 step %c1 {
// EVEN-NEXT:         arith.addi %[[K]], %c3
// EVEN-NEXT:         arith.addi %[[K]], %c6
// EVEN-NOT:          scf.if
// EVEN:          func.func @added

// Two groups of eight lanes share the tile of five: the others compute column 0, so that all reach the reductions.
// GROUPS-LABEL:  func.func @spmm
// GROUPS:          %[[PLACE:.*]] = arith.remui %{{.*}}, %c8
// GROUPS-NEXT:     %[[GROUP:.*]] = arith.divui %{{.*}}, %c8
// GROUPS:          %[[INSIDE:.*]] = arith.cmpi ult, %[[PLACE]], %c5
// GROUPS-NEXT:     %[[K:.*]] = arith.select %[[INSIDE]], %[[PLACE]], %c0
// GROUPS-NEXT:     %[[NEW:.*]] = arith.cmpi uge, %[[K]], %c1
// GROUPS-NEXT:     %[[K1:.*]] = arith.addi %[[K]], %c4
// GROUPS-COUNT-2:  "ditto.lane_reduce"
// GROUPS:          %[[LEADS:.*]] = arith.cmpi eq, %[[GROUP]], %c0
// GROUPS-NEXT:     %[[STORES:.*]] = arith.andi %[[LEADS]], %[[INSIDE]]
// GROUPS-NEXT:     scf.if %[[STORES]] {
// GROUPS-NEXT:       memref.store %{{.*}}, %arg2[%{{.*}}, %[[K]]]
// GROUPS-NEXT:       scf.if %[[NEW]] {
// GROUPS-NEXT:         memref.store %{{.*}}, %arg2[%{{.*}}, %[[K1]]]

// Pieces of a cut row are added: each column once.
// SEGMENTS-LABEL: func.func @spmm
// SEGMENTS:         %[[NEW:.*]] = arith.cmpi uge
// SEGMENTS:         scf.if %{{.*}} {
// SEGMENTS-NEXT:      memref.atomic_rmw addf %{{.*}}#0
// SEGMENTS-NEXT:      scf.if %[[NEW]] {
// SEGMENTS-NEXT:        memref.atomic_rmw addf %{{.*}}#1
// SEGMENTS-NEXT:      }
// SEGMENTS-NEXT:    } else {
// SEGMENTS-NEXT:      memref.store %{{.*}}#0
// SEGMENTS-NEXT:      scf.if %[[NEW]] {
// SEGMENTS-NEXT:        memref.store %{{.*}}#1
func.func @spmm(%A: tensor<?x?xf32, #CSR>, %B: memref<?x9xf32>, %C: memref<?x9xf32>) {
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

// A sum that starts from the output reads it only where this iteration stores it: another thread may store column 4 meanwhile.
// CHECK-LABEL: func.func @added
// CHECK:         scf.for %[[K:.*]] = %c0 to %c5 step %c1 {
// CHECK-NEXT:      %[[NEW:.*]] = arith.cmpi uge, %[[K]], %c1
// CHECK-NEXT:      %[[K1:.*]] = arith.addi %[[K]], %c4
// CHECK-NEXT:      %[[C:.*]] = memref.load %arg2[%[[I:.*]], %[[K]]]
// CHECK-NEXT:      %[[OWN:.*]] = arith.select %[[NEW]], %[[K1]], %[[K]]
// CHECK-NEXT:      %[[C1:.*]] = memref.load %arg2[%[[I]], %[[OWN]]]
// CHECK-NEXT:      scf.for {{.*}} iter_args(%{{.*}} = %[[C]], %{{.*}} = %[[C1]])
func.func @added(%A: tensor<?x?xf32, #CSR>, %B: memref<?x9xf32>, %C: memref<?x9xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 9 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x9xf32>
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %c) -> (f32) {
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
