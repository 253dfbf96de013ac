// RUN: ditto-opt -p 'rows-to-threads,coarsen-rows{rows=4},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8},coarsen-rows{rows=2},canonicalize,cse' %s | FileCheck %s --check-prefix=LANES
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=32},coarsen-rows{rows=2},canonicalize,cse' %s | FileCheck %s --check-prefix=FULL
// RUN: ditto-opt -p 'rows-to-threads,coarsen-rows{rows=1}' %s | FileCheck %s --check-prefix=ONE
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8},coarsen-rows,map-blocks,canonicalize,cse' %s | FileCheck %s --check-prefix=BLOCKS
// RUN: ditto-opt -p 'rows-to-threads,coarsen-rows,unroll{factor=2}' %s | FileCheck %s --check-prefix=UNROLLED
// RUN: ditto-opt -p 'unroll{factor=2},rows-to-threads,coarsen-rows' %s | FileCheck %s --check-prefix=UNROLLED

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// A warp takes 128 neighbouring rows, 32 at a time, so that neighbouring threads stay on neighbouring rows.
// CHECK-LABEL: func.func @spmv
// CHECK:         %[[M:.*]] = sparse_tensor.lvl
// CHECK:         %[[WARPS:.*]] = arith.ceildivui %[[M]], %c128
// CHECK-NEXT:    %[[THREADS:.*]] = arith.muli %[[WARPS]], %c32
// CHECK-NEXT:    scf.forall (%[[G:.*]]) in (%[[THREADS]]) {
// CHECK-NEXT:      %[[WARP:.*]] = arith.divui %[[G]], %c32
// CHECK-NEXT:      %[[START:.*]] = arith.muli %[[WARP]], %c128
// CHECK-NEXT:      %[[LANE:.*]] = arith.remui %[[G]], %c32
// CHECK-NEXT:      %[[OWN:.*]] = arith.addi %[[START]], %[[LANE]]
// CHECK-NEXT:      scf.for %[[K:.*]] = %c0 to %c128 step %c32 {
// CHECK-NEXT:        %[[I:.*]] = arith.addi %[[OWN]], %[[K]]
// CHECK-NEXT:        %[[INSIDE:.*]] = arith.cmpi ult, %[[I]], %[[M]]
// CHECK-NEXT:        scf.if %[[INSIDE]] {
// CHECK-NEXT:          memref.load %{{.*}}[%[[I]]]
// CHECK:               memref.store %{{.*}}[%[[I]]]
// CHECK-NEXT:        }
// CHECK-NEXT:      } {ditto.walks = "rows"}
// CHECK-NEXT:    } {mapping = [#gpu.thread<linear_dim_0>]}

// Four subgroups of eight lanes in a warp.  They meet in a reduction, so those past the last row do that once more.
// LANES-LABEL: func.func @spmv
// LANES:         %[[M:.*]] = sparse_tensor.lvl
// LANES:         %[[WARPS:.*]] = arith.ceildivui %[[M]], %c8
// LANES-NEXT:    %[[GROUPS:.*]] = arith.muli %[[WARPS]], %c4
// LANES-NEXT:    scf.forall (%{{.*}}) in (%[[GROUPS]]) {
// LANES-NEXT:      scf.forall (%{{.*}}) in (8) {
// LANES:             scf.for %[[K:.*]] = %c0 to %c8 step %c4 {
// LANES-NEXT:          %[[ROW:.*]] = arith.addi %{{.*}}, %[[K]]
// LANES-NEXT:          %[[INSIDE:.*]] = arith.cmpi ult, %[[ROW]], %[[M]]
// LANES-NEXT:          %[[LAST:.*]] = arith.subi %[[M]], %c1
// LANES-NEXT:          %[[I:.*]] = arith.select %[[INSIDE]], %[[ROW]], %[[LAST]]
// LANES:               "ditto.lane_reduce"
// LANES:               %[[LEADER:.*]] = arith.cmpi eq
// LANES-NEXT:          %[[STORES:.*]] = arith.andi %[[INSIDE]], %[[LEADER]]
// LANES-NEXT:          scf.if %[[STORES]] {
// LANES:                 memref.store %{{.*}}[%[[I]]]

// A warp a row: the next row is the next one.
// FULL-LABEL: func.func @spmv
// FULL:         scf.forall (%[[G:.*]]) in
// FULL-NEXT:      scf.forall (%{{.*}}) in (32) {
// FULL-NEXT:        %[[START:.*]] = arith.muli %[[G]], %c2
// FULL-NEXT:        scf.for %[[K:.*]] = %c0 to %c2 step %c1 {
// FULL-NEXT:          arith.addi %[[START]], %[[K]]

// ONE-NOT: ditto.walks

// BLOCKS:      scf.forall (%{{.*}}) in (128) {
// BLOCKS:        scf.for
// BLOCKS:          "ditto.lane_reduce"
// BLOCKS:        } {ditto.walks = "rows"}

// UNROLLED:         scf.for
// UNROLLED-COUNT-2: {ditto.unrolled}
// UNROLLED:         {ditto.walks = "rows"}
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
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
