// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8},share-loads,canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=32 groups=4},share-loads,canonicalize,cse' %s | FileCheck %s --check-prefix=GROUPS
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=32},share-loads,canonicalize,cse' %s | FileCheck %s --check-prefix=WARP
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8},share-loads{ahead=true},canonicalize,cse' %s | FileCheck %s --check-prefix=AHEAD
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8},share-loads,unroll{factor=2},map-blocks,canonicalize,cse' %s | FileCheck %s --check-prefix=UNROLLED

#CSR32 = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>
#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Eight lanes load eight entries.  Four rows share a warp: all lanes walk as far as the longest of them, a lane past the end of
// its row gets zeros, and its sum stays as it is.
// CHECK-LABEL: func.func @eight
// CHECK:         scf.forall (%[[LANE:.*]]) in (8) {
// CHECK:           %[[SPAN:.*]] = arith.subi
// CHECK-NEXT:      %[[COUNT:.*]] = arith.maxsi %[[SPAN]], %c0
// CHECK-NEXT:      %[[NUMBER:.*]] = arith.index_castui %[[COUNT]] : index to i32
// CHECK-NEXT:      %[[LONGEST:.*]] = "ditto.lane_reduce"(%[[NUMBER]]) {kind = "arith.maxui", lanes = 4 : i32, stride = 8 : i32}
// CHECK-NEXT:      %[[MOST:.*]] = arith.index_castui %[[LONGEST]] : i32 to index
// CHECK-NEXT:      %[[S:.*]] = scf.for %[[O:.*]] = %c0 to %[[MOST]] step %c8 iter_args(%[[A:.*]] = %cst) -> (f32) {
// CHECK-NEXT:        %[[MINE:.*]] = arith.addi %[[O]], %[[LANE]]
// CHECK-NEXT:        %[[HAS:.*]] = arith.cmpi ult, %[[MINE]], %[[COUNT]]
// CHECK-NEXT:        %[[ENTRY:.*]]:2 = scf.if %[[HAS]] -> (i32, f32) {
// CHECK-NEXT:          %[[P:.*]] = arith.addi %{{.*}}, %[[MINE]]
// CHECK-NEXT:          memref.load %{{.*}}[%[[P]]] : memref<?xi32>
// CHECK-NEXT:          memref.load %{{.*}}[%[[P]]] : memref<?xf32>
// CHECK-NEXT:          scf.yield
// CHECK-NEXT:        } else {
// CHECK-NEXT:          scf.yield %c0_i32, %cst
// CHECK-NEXT:        }
// CHECK-NEXT:        %[[REST:.*]] = arith.subi %[[COUNT]], %[[O]]
// CHECK-NEXT:        %[[SOME:.*]] = arith.maxsi %[[REST]], %c0
// CHECK-NEXT:        %[[HERE:.*]] = arith.minui %[[SOME]], %c8
// CHECK-NEXT:        %[[OWN:.*]] = arith.index_cast %[[HERE]] : index to i32
// CHECK-NEXT:        %[[LEFT:.*]] = arith.subi %[[MOST]], %[[O]]
// CHECK-NEXT:        %[[TAKE:.*]] = arith.minui %[[LEFT]], %c8
// CHECK-NEXT:        scf.for %[[K:.*]] = %c0 to %[[TAKE]] step %c1 iter_args(%[[B:.*]] = %[[A]]) -> (f32) {
// CHECK-NEXT:          %[[J:.*]] = "ditto.lane_broadcast"(%[[ENTRY]]#0, %[[K]]) {lanes = 8 : i32} : (i32, index) -> i32
// CHECK-NEXT:          %[[V:.*]] = "ditto.lane_broadcast"(%[[ENTRY]]#1, %[[K]]) {lanes = 8 : i32} : (f32, index) -> f32
// CHECK:               memref.load %{{.*}}[%{{.*}}, %[[LANE]]] : memref<?x8xf32>
// CHECK:               %[[N:.*]] = arith.addf %[[B]]
// CHECK-NEXT:          %[[AT:.*]] = arith.index_cast %[[K]] : index to i32
// CHECK-NEXT:          %[[INSIDE:.*]] = arith.cmpi ult, %[[AT]], %[[OWN]]
// CHECK-NEXT:          %[[NEXT:.*]] = arith.select %[[INSIDE]], %[[N]], %[[B]] : f32
// CHECK-NEXT:          scf.yield %[[NEXT]] : f32
// CHECK:           memref.store %[[S]]

// Four groups of eight lanes have every fourth entry each, and so a length of their own: they too walk as far as the longest.
// A lane's entry is the group's first one, and four further for each lane.
// GROUPS-LABEL: func.func @eight
// GROUPS:         scf.forall (%[[LANE:.*]]) in (32) {
// GROUPS-DAG:       %[[PLACE:.*]] = arith.remui %[[LANE]], %c8
// GROUPS:           %[[COUNT:.*]] = arith.ceildivui %{{.*}}, %c4
// GROUPS:           "ditto.lane_reduce"(%{{.*}}) {kind = "arith.maxui", lanes = 4 : i32, stride = 8 : i32}
// GROUPS:             %[[MINE:.*]] = arith.addi %{{.*}}, %[[PLACE]]
// GROUPS:             %[[FAR:.*]] = arith.muli %[[MINE]], %c4
// GROUPS-NEXT:        %[[P:.*]] = arith.addi %{{.*}}, %[[FAR]]
// GROUPS-NEXT:        memref.load %{{.*}}[%[[P]]]
// GROUPS-COUNT-2:     "ditto.lane_broadcast"(%{{.*}}) {lanes = 8 : i32}
// GROUPS:           "ditto.lane_reduce"(%{{.*}}) {kind = "arith.addf", lanes = 4 : i32, stride = 8 : i32}

// A warp has one row, and nothing to agree on.  24 lanes have no column: they do that of lane 0 and store nothing.
// WARP-LABEL: func.func @eight
// WARP:         scf.forall (%[[LANE:.*]]) in (32) {
// WARP:           %[[INSIDE:.*]] = arith.cmpi ult, %[[LANE]], %c8
// WARP:           %[[COLUMN:.*]] = arith.select %[[INSIDE]], %[[LANE]], %c0
// WARP-NOT:       ditto.lane_reduce
// WARP-NOT:       scf.if %[[INSIDE]]
// WARP:           scf.for
// WARP:             scf.for
// WARP-COUNT-2:       "ditto.lane_broadcast"(%{{.*}}) {lanes = 32 : i32}
// WARP:               memref.load %{{.*}}[%{{.*}}, %[[COLUMN]]]
// WARP-NOT:           arith.select
// WARP:           scf.if %[[INSIDE]] {
// WARP-NEXT:        memref.store %{{.*}}[%{{.*}}, %[[COLUMN]]]

// The next entries are loaded before the sums with these.
// AHEAD-LABEL: func.func @eight
// AHEAD:         %[[FIRST:.*]]:2 = scf.if
// AHEAD:         scf.for %[[O:.*]] = %c0 to {{.*}} iter_args(%{{.*}} = %cst, %[[J:.*]] = %[[FIRST]]#0, %[[V:.*]] = %[[FIRST]]#1)
// AHEAD-NEXT:      arith.addi %[[O]], %c8
// AHEAD:           %[[NEXT:.*]]:2 = scf.if
// AHEAD:           %[[S:.*]] = scf.for
// AHEAD-NEXT:        "ditto.lane_broadcast"(%[[J]],
// AHEAD-NEXT:        "ditto.lane_broadcast"(%[[V]],
// AHEAD:           scf.yield %[[S]], %[[NEXT]]#0, %[[NEXT]]#1

// The inner loop is what unroll unrolls; threads past the last row walk with the others, as for every collective.
// UNROLLED-LABEL: func.func @eight
// UNROLLED:         arith.select
// UNROLLED:         scf.for {{.*}} step %c8
// UNROLLED:           scf.for {{.*}} step %c2
// UNROLLED-COUNT-4:     "ditto.lane_broadcast"
// UNROLLED:           {ditto.unrolled}
// UNROLLED:         scf.if
// UNROLLED-NEXT:      memref.store
func.func @eight(%A: tensor<?x?xf32, #CSR32>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR32>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR32> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR32> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR32> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %first = memref.load %pos[%i] : memref<?xi32>
    %i1 = arith.addi %i, %c1 : index
    %last = memref.load %pos[%i1] : memref<?xi32>
    %lo = arith.index_castui %first : i32 to index
    %hi = arith.index_castui %last : i32 to index
    scf.for %k = %c0 to %c8 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %at = memref.load %crd[%p] : memref<?xi32>
        %j = arith.index_castui %at : i32 to index
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

// Nine columns on eight lanes: every lane goes round twice.  In the second round lane 0 has a column; the others do that again
// and store nothing.  Where all lanes have equally many columns (16 on 8 lanes) the loop stays as it was.
// CHECK-LABEL: func.func @nine
// CHECK:         scf.forall (%[[LANE:.*]]) in (8) {
// CHECK:           "ditto.lane_reduce"
// CHECK:           scf.for %[[K:.*]] = %c0 to %c9 step %c8 {
// CHECK-NEXT:        %[[OWN:.*]] = arith.addi %[[K]], %[[LANE]]
// CHECK-NEXT:        %[[INSIDE:.*]] = arith.cmpi ult, %[[OWN]], %c9
// CHECK-NEXT:        %[[COLUMN:.*]] = arith.select %[[INSIDE]], %[[OWN]], %[[K]]
// CHECK:             "ditto.lane_broadcast"
// CHECK:             scf.if %[[INSIDE]] {
// CHECK-NEXT:          memref.store %{{.*}}[%{{.*}}, %[[COLUMN]]]
func.func @nine(%A: tensor<?x?xf32, #CSR>, %B: memref<?x9xf32>, %C: memref<?x9xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c9 step %c1 {
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

// CHECK-LABEL: func.func @sixteen
// CHECK:         scf.forall (%[[LANE:.*]]) in (8) {
// CHECK:           scf.for %[[K:.*]] = %[[LANE]] to %c16 step %c8 {
// CHECK-NOT:         arith.cmpi ult, %[[K]]
// CHECK:             "ditto.lane_broadcast"
// CHECK-NOT:         scf.if
// CHECK:             memref.store %{{.*}}[%{{.*}}, %[[K]]]
func.func @sixteen(%A: tensor<?x?xf32, #CSR>, %B: memref<?x16xf32>, %C: memref<?x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c16 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x16xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x16xf32>
    }
  }
  return
}
