// RUN: ditto-opt -p 'split-entries{items=2},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'split-entries{items=2 mode=deterministic},canonicalize,cse' %s | FileCheck %s --check-prefix=ORDER
// RUN: ditto-opt -p 'split-entries{items=1 lanes=1 share=entries},canonicalize,cse' %s | FileCheck %s --check-prefix=ALONE
// RUN: ditto-opt -p 'split-entries,map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNELS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// A warp takes a part; a lane takes two neighbouring entries at a time by vector loads, and the word of flags says which of
// them end a row.  The scan hands on what is open.  Only the first row that ends in a part may have begun before it: it is added to
// the output atomically, as the sum is that goes on after the part.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[STARTS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.entry_parts.starts",
// CHECK-SAME:    %[[CARRY:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.entry_parts.carry",
// CHECK-SAME:    %[[FLAGS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.entry_parts.flags",
// CHECK-SAME:    %[[RANKS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.entry_parts.ranks",
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.entry_parts.rows",
// CHECK-SAME:    %[[LANES:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.entry_parts.lanes", ditto.recipe = "entry-parts{level=1 length=256 items=2}"})
// CHECK-NOT:     sparse_tensor.positions
// CHECK:         %[[BOUNDARIES:.*]] = memref.dim %[[STARTS]], %c0
// CHECK-NEXT:    %[[PARTS:.*]] = arith.subi %[[BOUNDARIES]], %c1
// CHECK-NEXT:    scf.forall (%[[PART:.*]]) in (%[[PARTS]]) {
// CHECK-NEXT:      scf.forall (%[[LANE:.*]]) in (32) {
// CHECK:             %[[HEAD:.*]] = memref.load %[[CARRY]][%[[PART]]]
// CHECK:             %[[LAST:.*]] = scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c64 iter_args(%[[CARRIED:.*]] = %cst) -> (f32) {
// CHECK:               memref.load %[[FLAGS]]
// CHECK:               memref.load %[[RANKS]]
// CHECK:               scf.if %{{.*}} -> (vector<2xindex>, vector<2xf32>) {
// CHECK-NEXT:            vector.load
// CHECK-NEXT:            vector.load
// CHECK-NEXT:            scf.yield
// CHECK-NEXT:          } else {
// CHECK-NEXT:            memref.load
// CHECK:               }
// CHECK:               memref.load %[[LANES]]
// CHECK:               %[[SCAN:.*]]:2 = "ditto.segmented_scan"(%{{.*}}, %{{.*}}) {kind = "arith.addf", lanes = 32 : i32}
// CHECK-NEXT:          arith.addf %[[CARRIED]], %[[SCAN]]#0
// CHECK:               scf.if
// CHECK:                 %[[ROW:.*]] = memref.load %[[ROWS]]
// CHECK-NEXT:            %[[I:.*]] = arith.index_castui %[[ROW]]
// CHECK-NEXT:            %[[CUT:.*]] = arith.cmpi eq, %[[ROW]], %[[HEAD]]
// CHECK-NEXT:            scf.if %[[CUT]] {
// CHECK-NEXT:              memref.atomic_rmw addf %[[S:.*]], %[[Y]][%[[I]]]
// CHECK-NEXT:            } else {
// CHECK-NEXT:              %[[Y0:.*]] = memref.load %[[Y]][%[[I]]]
// CHECK-NEXT:              %[[N:.*]] = arith.addf %[[Y0]], %[[S]]
// CHECK-NEXT:              memref.store %[[N]], %[[Y]][%[[I]]]
// CHECK:             } {ditto.unrolled}
// CHECK:             scf.if
// CHECK:               memref.atomic_rmw addf %[[LAST]], %[[Y]]
// CHECK:           } {mapping = [#gpu.lane<linear_dim_0>]}
// CHECK-NEXT:    } {mapping = [#gpu.warp<linear_dim_0>]}

// Pieces go to a workspace.  A thread adds up few of them, a block many, both in the order of the parts.
// ORDER-LABEL: func.func @spmv(
// ORDER-SAME:    %[[KEPT:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.entry_carries.sums", ditto.recipe = "entry-carries{level=1 length=256 columns=1}", ditto.workspace}
// ORDER-NOT:     memref.atomic_rmw
// ORDER:         memref.store %{{.*}}, %[[KEPT]]
// ORDER:         } {mapping = [#gpu.warp<linear_dim_0>]}
// ORDER:           %[[TAILS:.*]] = scf.for %{{.*}} step %c1 iter_args
// ORDER:             memref.load %[[KEPT]]
// ORDER:           %[[HEAD:.*]] = memref.load %[[KEPT]]
// ORDER-NEXT:      %[[SUM:.*]] = arith.addf %[[TAILS]], %[[HEAD]]
// ORDER-NEXT:      %[[OLD:.*]] = memref.load %[[Y:.*]][%[[I:.*]]]
// ORDER-NEXT:      %[[NEW:.*]] = arith.addf %[[OLD]], %[[SUM]]
// ORDER-NEXT:      memref.store %[[NEW]], %[[Y]][%[[I]]]
// ORDER:         } {ditto.kernel = "_carry", mapping = [#gpu.block<linear_dim_0>]}
// ORDER:           scf.for %{{.*}} step %c256 iter_args
// ORDER:           "ditto.block_reduce"(%{{.*}}) {kind = "arith.addf", threads = 256 : i32}
// ORDER:         } {ditto.kernel = "_carry_long", mapping = [#gpu.block<linear_dim_0>]}

// A thread walks a part by itself: nothing crosses lanes.
// ALONE-LABEL: func.func @spmv(
// ALONE-NOT:     entry_parts.lanes
// ALONE-NOT:     ditto.segmented_scan
// ALONE:         scf.for %{{.*}} step %c1 iter_args
// ALONE:         } {mapping = [#gpu.thread<linear_dim_0>]}
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
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

// Sums start from a constant: the parts store it to rows without entries, and a kernel of its own to the rows that are cut.  Lanes
// share the columns; each of them walks all entries of the part.
// CHECK-LABEL: func.func @spmm(
// CHECK-SAME:    %[[CUTS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "arg0.entry_parts.cut",
// CHECK-SAME:    %[[EMPTY:[a-z0-9]*]]: memref<?xi32> {ditto.name = "arg0.entry_parts.empty",
// CHECK:         memref.load %[[CUTS]]
// CHECK:         memref.store %cst, %arg2
// CHECK:         } {ditto.kernel = "_init", mapping = [#gpu.block<linear_dim_0>]}
// CHECK:         scf.forall
// CHECK-NEXT:      scf.forall (%[[LANE:.*]]) in (32) {
// CHECK:             %[[TAKES:.*]] = arith.cmpi ult, %[[LANE]], %c8
// CHECK-NEXT:        scf.if %[[TAKES]] {
// CHECK:               scf.for
// CHECK:                 memref.load %[[EMPTY]]
// CHECK:                 memref.store %cst, %arg2[%{{.*}}, %[[LANE]]]
// CHECK:               scf.for %{{.*}} step %c2 iter_args
// CHECK-NOT:             ditto.segmented_scan
// CHECK:                 memref.atomic_rmw addf %[[S:.*]], %arg2[%[[I:.*]], %[[LANE]]]
// CHECK-NEXT:          } else {
// CHECK-NEXT:            memref.store %[[S]], %arg2[%[[I]], %[[LANE]]]

// KERNELS:      gpu.func @spmv(
// KERNELS-SAME:   ditto.grid = ["ceildiv((A.entry_parts.starts.dim0 - 1), 4)", "1", "1"]
// KERNELS:      gpu.func @spmm_init(
// KERNELS:      gpu.func @spmm(
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
