// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8 share=columns},canonicalize,cse' %s | FileCheck %s --check-prefix=COLUMNS
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=4 share=entries},canonicalize,cse' %s | FileCheck %s --check-prefix=ENTRIES
// RUN: ditto-opt -p 'vectorize{width=4},rows-to-subgroups{lanes=8 groups=4},canonicalize,cse' %s | FileCheck %s --check-prefix=GROUPS
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=16 groups=2},canonicalize,cse' %s | FileCheck %s --check-prefix=TAIL
// RUN: ditto-opt -p 'unroll{factor=2},rows-to-subgroups{lanes=8},canonicalize,cse' %s | FileCheck %s --check-prefix=UNROLLED
// RUN: ditto-opt -p 'vectorize{width=4},rows-to-subgroups{lanes=2},canonicalize,cse' %s | FileCheck %s --check-prefix=VECTORS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// There are no columns, so that the lanes share the entries: each sums every eighth one from 0, and lane 0 adds the old value.
// CHECK-LABEL: func.func @spmv
// CHECK-SAME:      %[[Y:[a-z0-9]*]]: memref<?xf32>)
// CHECK:         %[[M:.*]] = sparse_tensor.lvl
// CHECK:         scf.forall (%[[I:.*]]) in (%[[M]]) {
// CHECK-NEXT:      scf.forall (%[[LANE:.*]]) in (8) {
// CHECK-NEXT:        %[[LO:.*]] = memref.load %{{.*}}[%[[I]]]
// CHECK:             %[[HI:.*]] = memref.load
// CHECK-NOT:         memref.load %[[Y]]
// CHECK:             %[[FIRST:.*]] = arith.addi %[[LO]], %[[LANE]]
// CHECK-NEXT:        %[[PART:.*]] = scf.for %{{.*}} = %[[FIRST]] to %[[HI]] step %c8 iter_args(%{{.*}} = %cst) -> (f32) {
// CHECK:             %[[ALL:.*]] = "ditto.lane_reduce"(%[[PART]]) {kind = "arith.addf", lanes = 8 : i32} : (f32) -> f32
// CHECK-NEXT:        %[[LEADER:.*]] = arith.cmpi eq, %[[LANE]], %c0
// CHECK-NEXT:        scf.if %[[LEADER]] {
// CHECK-NEXT:          %[[Y0:.*]] = memref.load %[[Y]][%[[I]]]
// CHECK-NEXT:          %[[S:.*]] = arith.addf %[[Y0]], %[[ALL]]
// CHECK-NEXT:          memref.store %[[S]], %[[Y]][%[[I]]]
// CHECK-NEXT:        }
// CHECK-NEXT:      } {mapping = [#gpu.lane<linear_dim_0>]}
// CHECK-NEXT:    } {mapping = [#gpu.warp<linear_dim_0>]}

// ENTRIES-LABEL: func.func @spmv
// ENTRIES:         scf.forall (%{{.*}}) in (4) {
// ENTRIES:           lanes = 4 : i32
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
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

// A maximum starts from minus infinity in each lane.
// CHECK-LABEL: func.func @maximum
// CHECK:         %[[NONE:.*]] = arith.constant 0xFF800000 : f32
// CHECK:         scf.for {{.*}} iter_args(%{{.*}} = %[[NONE]]) -> (f32) {
// CHECK:         "ditto.lane_reduce"(%{{.*}}) {kind = "arith.maximumf", lanes = 8 : i32}
// CHECK:         scf.if
// CHECK:           %[[Y0:.*]] = memref.load
// CHECK-NEXT:      arith.maximumf %[[Y0]], %{{.*}} : f32
func.func @maximum(%A: tensor<?x?xf32, #CSR>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %n = arith.maximumf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// As many columns as lanes: no loop is left, a lane's number is its column.  share=auto takes columns where there are any.
// CHECK-LABEL: func.func @spmm_as_many
// CHECK:         scf.forall (%[[I:.*]]) in (%{{.*}}) {
// CHECK-NEXT:      scf.forall (%[[LANE:.*]]) in (8) {
// CHECK:             %[[S:.*]] = scf.for {{.*}} step %c1 iter_args(%{{.*}} = %cst) -> (f32) {
// CHECK:               memref.load %{{.*}}[%{{.*}}, %[[LANE]]]
// CHECK-NOT:         ditto.lane_reduce
// CHECK-NOT:         scf.if
// CHECK:             memref.store %[[S]], %{{.*}}[%[[I]], %[[LANE]]]
// CHECK-NEXT:      } {mapping = [#gpu.lane<linear_dim_0>]}

// COLUMNS-LABEL: func.func @spmm_as_many
// COLUMNS:         scf.forall (%[[LANE:.*]]) in (8) {
// COLUMNS:           memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[LANE]]]

// The columns are shared even where entries could be, and the other way round, if share says so: a lane reduction for each column.
// The fill is the sum's initial value; 0 needs no addition.
// ENTRIES-LABEL: func.func @spmm_as_many
// ENTRIES:         scf.forall (%[[LANE:.*]]) in (4) {
// ENTRIES:           scf.for %[[K:.*]] = %c0 to %c8 step %c1 {
// ENTRIES:             %[[PART:.*]] = scf.for {{.*}} step %c4
// ENTRIES:             %[[ALL:.*]] = "ditto.lane_reduce"(%[[PART]])
// ENTRIES-NEXT:        %[[LEADER:.*]] = arith.cmpi eq, %[[LANE]], %c0
// ENTRIES-NEXT:        scf.if %[[LEADER]] {
// ENTRIES-NEXT:          memref.store %[[ALL]], %{{.*}}[%{{.*}}, %[[K]]]

// Unrolled before: the columns can still be shared.
// UNROLLED-LABEL: func.func @spmm_as_many
// UNROLLED:         scf.forall (%[[LANE:.*]]) in (8) {
// UNROLLED-COUNT-2:   {ditto.unrolled}
// UNROLLED:           memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[LANE]]]

// Vectors before: a lane's first column is its number times the width.
// VECTORS-LABEL: func.func @spmm_as_many
// VECTORS:         scf.forall (%[[LANE:.*]]) in (2) {
// VECTORS:           %[[FIRST:.*]] = arith.muli %[[LANE]], %c4
// VECTORS:           vector.load %{{.*}}[%{{.*}}, %[[FIRST]]]
// VECTORS:           vector.store %{{.*}}, %{{.*}}[%{{.*}}, %[[FIRST]]]

// Groups: two lanes share the columns, four such groups take the entries in turn, and lanes two apart meet.
// GROUPS-LABEL: func.func @spmm_as_many
// GROUPS:         scf.forall (%[[LANE:.*]]) in (8) {
// GROUPS-NEXT:      %[[PLACE:.*]] = arith.remui %[[LANE]], %c2
// GROUPS-NEXT:      %[[GROUP:.*]] = arith.divui %[[LANE]], %c2
// GROUPS:           %[[COLUMN:.*]] = arith.muli %[[PLACE]], %c4
// GROUPS-NEXT:      %[[FIRST:.*]] = arith.addi %{{.*}}, %[[GROUP]]
// GROUPS-NEXT:      %[[PART:.*]] = scf.for %{{.*}} = %[[FIRST]] to %{{.*}} step %c4
// GROUPS:           %[[ALL:.*]] = "ditto.lane_reduce"(%[[PART]]) {kind = "arith.addf", lanes = 4 : i32, stride = 2 : i32}
// GROUPS-NEXT:      %[[FIRST_GROUP:.*]] = arith.cmpi eq, %[[GROUP]], %c0
// GROUPS-NEXT:      scf.if %[[FIRST_GROUP]] {
// GROUPS-NEXT:        vector.store %[[ALL]], %{{.*}}[%{{.*}}, %[[COLUMN]]]
func.func @spmm_as_many(%A: tensor<?x?xf32, #CSR>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
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

// Fewer columns than lanes: the lanes past the last column do nothing.
// CHECK-LABEL: func.func @spmm_fewer
// CHECK:         scf.forall (%[[LANE:.*]]) in (8) {
// CHECK:           %[[INSIDE:.*]] = arith.cmpi ult, %[[LANE]], %c5
// CHECK-NEXT:      scf.if %[[INSIDE]] {
// CHECK:             memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[LANE]]]
// CHECK-NEXT:      }
// CHECK-NEXT:    } {mapping = [#gpu.lane<linear_dim_0>]}
func.func @spmm_fewer(%A: tensor<?x?xf32, #CSR>, %B: memref<?x5xf32>, %C: memref<?x5xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %hi = memref.load %pos[%lo] : memref<?xindex>
    scf.for %k = %c0 to %c5 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%p, %k] : memref<?x5xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x5xf32>
    }
  }
  return
}

// More columns than lanes, or a number that is not known: each lane takes every eighth column.
// CHECK-LABEL: func.func @spmm_more
// CHECK:         scf.forall (%[[LANE:.*]]) in (8) {
// CHECK:           scf.for %[[K:.*]] = %[[LANE]] to %c33 step %c8 {
// CHECK:             memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[K]]]
func.func @spmm_more(%A: tensor<?x?xf32, #CSR>, %B: memref<?x33xf32>, %C: memref<?x33xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c33 = arith.constant 33 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %hi = memref.load %pos[%lo] : memref<?xindex>
    scf.for %k = %c0 to %c33 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%p, %k] : memref<?x33xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x33xf32>
    }
  }
  return
}

// CHECK-LABEL: func.func @spmm_dynamic
// CHECK:         %[[KS:.*]] = memref.dim
// CHECK:         scf.forall (%[[LANE:.*]]) in (8) {
// CHECK:           scf.for %[[K:.*]] = %[[LANE]] to %[[KS]] step %c8 {
// CHECK:             memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[K]]]
func.func @spmm_dynamic(%A: tensor<?x?xf32, #CSR>, %B: memref<?x?xf32>, %C: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  %columns = memref.dim %B, %c1 : memref<?x?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %hi = memref.load %pos[%lo] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%p, %k] : memref<?x?xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x?xf32>
    }
  }
  return
}

// Groups whose lanes have not equally many columns: all take equally many turns, each at a column that exists.
// TAIL-LABEL: func.func @spmm_fewer
// TAIL:         %[[INSIDE:.*]] = arith.cmpi ult, %[[PLACE:.*]], %c5
// TAIL-NEXT:    %[[K:.*]] = arith.select %[[INSIDE]], %[[PLACE]], %c0
// TAIL:         "ditto.lane_reduce"
// TAIL:         %[[STORES:.*]] = arith.andi %{{.*}}, %[[INSIDE]]
// TAIL-NEXT:    scf.if %[[STORES]] {
// TAIL-NEXT:      memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[K]]]

// TAIL-LABEL: func.func @spmm_more
// TAIL:         scf.for %[[START:.*]] = %c0 to %c33 step %c8 {
// TAIL-NEXT:      %[[COLUMN:.*]] = arith.addi %[[START]], %{{.*}}
// TAIL-NEXT:      %[[INSIDE:.*]] = arith.cmpi ult, %[[COLUMN]], %c33
// TAIL-NEXT:      %[[K:.*]] = arith.select %[[INSIDE]], %[[COLUMN]], %[[START]]
// TAIL:           "ditto.lane_reduce"
// TAIL:           %[[STORES:.*]] = arith.andi %{{.*}}, %[[INSIDE]]
// TAIL-NEXT:      scf.if %[[STORES]] {
// TAIL-NEXT:        memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[K]]]

// TAIL-LABEL: func.func @spmm_dynamic
// TAIL:         %[[KS:.*]] = memref.dim
// TAIL:         scf.for %{{.*}} = %c0 to %[[KS]] step %c8 {
// TAIL:           "ditto.lane_reduce"
