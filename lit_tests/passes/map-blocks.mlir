// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=64},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=4},map-blocks{threads=64},canonicalize,cse' %s | FileCheck %s --check-prefix=LANES

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// As many blocks as it takes for all rows; a thread past the last row does nothing.
// CHECK-LABEL: func.func @spmv
// CHECK:         %[[M:.*]] = sparse_tensor.lvl
// CHECK:         %[[BLOCKS:.*]] = arith.ceildivui %[[M]], %c64
// CHECK-NEXT:    scf.forall (%[[BLOCK:.*]]) in (%[[BLOCKS]]) {
// CHECK-NEXT:      scf.forall (%[[THREAD:.*]]) in (64) {
// CHECK-NEXT:        %[[FIRST:.*]] = arith.muli %[[BLOCK]], %c64
// CHECK-NEXT:        %[[I:.*]] = arith.addi %[[FIRST]], %[[THREAD]]
// CHECK-NEXT:        %[[INSIDE:.*]] = arith.cmpi ult, %[[I]], %[[M]]
// CHECK-NEXT:        scf.if %[[INSIDE]] {
// CHECK-NEXT:          memref.load %{{.*}}[%[[I]]]
// CHECK:               memref.store %{{.*}}, %{{.*}}[%[[I]]]
// CHECK-NEXT:        }
// CHECK-NEXT:      } {mapping = [#gpu.thread<linear_dim_0>]}
// CHECK-NEXT:    } {mapping = [#gpu.block<linear_dim_0>]}

// 16 groups of 4 lanes a block.  All lanes of a warp must reach the reduction: a group past the last row does that row
// again, and only what reads and writes the output is guarded.
// LANES-LABEL: func.func @spmv
// LANES:         %[[M:.*]] = sparse_tensor.lvl
// LANES:         %[[BLOCKS:.*]] = arith.ceildivui %[[M]], %c16
// LANES-NEXT:    scf.forall (%[[BLOCK:.*]]) in (%[[BLOCKS]]) {
// LANES-NEXT:      scf.forall (%[[THREAD:.*]]) in (64) {
// LANES-NEXT:        %[[GROUP:.*]] = arith.divui %[[THREAD]], %c4
// LANES-NEXT:        %[[LANE:.*]] = arith.remui %[[THREAD]], %c4
// LANES-NEXT:        %[[FIRST:.*]] = arith.muli %[[BLOCK]], %c16
// LANES-NEXT:        %[[I:.*]] = arith.addi %[[FIRST]], %[[GROUP]]
// LANES-NEXT:        %[[INSIDE:.*]] = arith.cmpi ult, %[[I]], %[[M]]
// LANES-NEXT:        %[[LAST:.*]] = arith.subi %[[M]], %c1
// LANES-NEXT:        %[[ROW:.*]] = arith.select %[[INSIDE]], %[[I]], %[[LAST]]
// LANES-NEXT:        memref.load %{{.*}}[%[[ROW]]]
// LANES-NOT:         scf.if
// LANES:             %[[ALL:.*]] = "ditto.lane_reduce"
// LANES-NEXT:        %[[LEADER:.*]] = arith.cmpi eq, %[[LANE]], %c0
// LANES-NEXT:        %[[STORES:.*]] = arith.andi %[[INSIDE]], %[[LEADER]]
// LANES-NEXT:        scf.if %[[STORES]] {
// LANES-NEXT:          %[[OLD:.*]] = memref.load %arg2[%[[ROW]]]
// LANES-NEXT:          %[[NEW:.*]] = arith.addf %[[OLD]], %[[ALL]]
// LANES-NEXT:          memref.store %[[NEW]], %arg2[%[[ROW]]]
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

// The lanes share the columns, so that nothing crosses them: the whole row is guarded.
// LANES-LABEL: func.func @spmm
// LANES:         scf.forall (%[[THREAD:.*]]) in (64) {
// LANES:           %[[LANE:.*]] = arith.remui %[[THREAD]], %c4
// LANES:           %[[INSIDE:.*]] = arith.cmpi ult, %[[I:.*]], %{{.*}}
// LANES-NOT:       arith.select
// LANES-NEXT:      scf.if %[[INSIDE]] {
// LANES-NEXT:        memref.load %{{.*}}[%[[I]]]
// LANES:             memref.store %{{.*}}, %arg2[%[[I]], %[[LANE]]]
func.func @spmm(%A: tensor<?x?xf32, #CSR>, %B: memref<?x4xf32>, %C: memref<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c4 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x4xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x4xf32>
    }
  }
  return
}

// BSR shares the entries inside the loop over a block's rows: the collective stands in that loop, and the guard inside it too.
// LANES-LABEL: func.func @blocks
// LANES:         scf.forall (%{{.*}}) in (64) {
// LANES:           %[[INSIDE:.*]] = arith.cmpi ult
// LANES:           arith.select %[[INSIDE]]
// LANES-NOT:       scf.if
// LANES:           scf.for %{{.*}} = %c0 to %c2 step %c1 {
// LANES:             "ditto.lane_reduce"
// LANES-NEXT:        %[[LEADER:.*]] = arith.cmpi eq
// LANES-NEXT:        %[[STORES:.*]] = arith.andi %[[INSIDE]], %[[LEADER]]
// LANES-NEXT:        scf.if %[[STORES]] {
func.func @blocks(%A: tensor<?x?xf32, #CSR>, %y: memref<?x2xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %r = %c0 to %c2 step %c1 {
      %y0 = memref.load %y[%i, %r] : memref<?x2xf32>
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
        %q = arith.addi %p, %r : index
        %v = memref.load %val[%q] : memref<?xf32>
        %n = arith.addf %a, %v : f32
        scf.yield %n : f32
      }
      memref.store %s, %y[%i, %r] : memref<?x2xf32>
    }
  }
  return
}
