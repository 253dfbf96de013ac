// RUN: ditto-opt -p 'stage-entries{entries=128 threads=64 stage=products},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'stage-entries{entries=128 threads=64 stage=entries},canonicalize,cse' %s | FileCheck %s --check-prefix=ENTRIES
// RUN: ditto-opt -p 'stage-entries{entries=128 threads=64},unroll,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNEL

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// The host shares the rows out; two of its arrays are workspaces, which the kernel writes and is no output.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_blocks.rows", ditto.recipe = "row-blocks{level=1 entries=128 rows=256 threads=64}"},
// CHECK-SAME:    %[[POS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_blocks.positions", ditto.part = "positions", ditto.recipe = "row-blocks{{[^"]*}}"},
// CHECK-SAME:    %[[SHIFTS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_blocks.shift", ditto.recipe = "row-blocks{{[^"]*}}"},
// CHECK-SAME:    %[[STARTS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_blocks.start", ditto.recipe = "row-blocks{{[^"]*}}"},
// CHECK-SAME:    %[[PIECES:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_blocks.pieces", ditto.recipe = "row-blocks{{[^"]*}}"},
// CHECK-SAME:    %[[PARTIALS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_blocks.partials", ditto.recipe = "row-blocks{{[^"]*}}", ditto.workspace},
// CHECK-SAME:    %[[TICKETS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_blocks.tickets", ditto.recipe = "row-blocks{{[^"]*}}", ditto.workspace})
// CHECK:         %[[COUNT:.*]] = memref.dim %[[SHIFTS]], %c0
// CHECK-NEXT:    scf.forall (%[[BLOCK:.*]]) in (%[[COUNT]]) {
// CHECK-NEXT:      scf.forall (%[[T:.*]]) in (64) {
// CHECK:             %[[TAG:.*]] = memref.load %[[ROWS]][%[[BLOCK]]]
// CHECK:             %[[CUT:.*]] = arith.cmpi slt, %[[TAG]], %c0_i32
// CHECK-NEXT:        scf.if %[[CUT]] {

// A piece of a cut row: the block sums it up, leaves the sum in a place that is 0, and then takes a ticket.
// CHECK:               %[[PART:.*]] = scf.for %{{.*}} step %c64 iter_args(%{{.*}} = %cst)
// CHECK:               %[[SUM:.*]] = "ditto.block_reduce"(%[[PART]]) {kind = "arith.addf", threads = 64 : i32}
// CHECK:               %[[S0:.*]] = memref.load %[[STARTS]][%[[BLOCK]]]
// CHECK:               %[[ALL:.*]] = memref.load %[[PIECES]][%[[BLOCK]]]
// CHECK:               %[[FLAG:.*]] = "ditto.shared_buffer"() : () -> memref<1xi32, 3>
// CHECK-NEXT:          %[[LEADER:.*]] = arith.cmpi eq, %[[T]], %c0
// CHECK-NEXT:          scf.if %[[LEADER]] {
// CHECK-NEXT:            %[[LEFT:.*]] = arith.bitcast %[[SUM]] : f32 to i32
// CHECK-NEXT:            memref.atomic_rmw ori %[[LEFT]], %[[PARTIALS]][%[[BLOCK]]]
// CHECK-NEXT:            "ditto.fence"()
// CHECK-NEXT:            %[[TICKET:.*]] = memref.atomic_rmw addi %c1_i32, %[[TICKETS]]
// CHECK-NEXT:            memref.store %[[TICKET]], %[[FLAG]][%c0]
// CHECK-NEXT:          }
// CHECK-NEXT:          gpu.barrier
// CHECK-NEXT:          %[[MINE:.*]] = memref.load %[[FLAG]][%c0]
// CHECK-NEXT:          %[[TAKEN:.*]] = arith.addi %[[MINE]], %c1_i32
// CHECK-NEXT:          %[[LAST:.*]] = arith.cmpi eq, %[[TAKEN]], %[[ALL]]
// CHECK-NEXT:          scf.if %[[LAST]] {

// The last one adds up all sums, in their order, and leaves zeros where sums and tickets were; only then is the old output read.
// CHECK-NEXT:            "ditto.fence"()
// CHECK:                 %[[REST:.*]] = scf.for %[[Q:.*]] = %[[T]] to %{{.*}} step %c64 iter_args(%{{.*}} = %cst)
// CHECK:                   %[[BITS:.*]] = memref.atomic_rmw andi %c0_i32, %[[PARTIALS]]
// CHECK-NEXT:              arith.bitcast %[[BITS]] : i32 to f32
// CHECK:                 %[[WHOLE:.*]] = "ditto.block_reduce"(%[[REST]]) {kind = "arith.addf", threads = 64 : i32}
// CHECK-NEXT:            scf.if %[[LEADER]] {
// CHECK-NEXT:              memref.atomic_rmw andi %c0_i32, %[[TICKETS]]
// CHECK-NEXT:              %[[Y0:.*]] = memref.load %[[Y]][%[[R:.*]]]
// CHECK-NEXT:              %[[N:.*]] = arith.addf %[[Y0]], %[[WHOLE]]
// CHECK-NEXT:              memref.store %[[N]], %[[Y]][%[[R]]]

// Whole rows: the host says how many lanes a row has.  Where the first row of each group of lanes begins and ends is loaded first.
// CHECK:             } else {
// CHECK:               %[[SH:.*]] = memref.load %[[SHIFTS]][%[[BLOCK]]]
// CHECK-NEXT:          %[[SHIFT:.*]] = arith.index_castui %[[SH]]
// CHECK-NEXT:          %[[GROUPS:.*]] = arith.shrui %c64, %[[SHIFT]]
// CHECK-NEXT:          %[[GROUP:.*]] = arith.shrui %[[T]], %[[SHIFT]]
// CHECK:               %[[LO:.*]] = memref.load %{{.*}} : memref<?xindex>
// CHECK:               %[[HI:.*]] = memref.load %{{.*}} : memref<?xindex>

// Thread t takes the entries t and t + 64: coordinates, then values, then what they gather, then what is staged.
// CHECK:               %[[STAGED:.*]] = "ditto.shared_buffer"() : () -> memref<128xf32, 3>
// CHECK-NEXT:          %[[SOME:.*]] = arith.cmpi ult,
// CHECK-NEXT:          scf.if %[[SOME]] {
// CHECK-NEXT:            memref.load %{{.*}} : memref<?xi32>
// CHECK-NEXT:            memref.load %{{.*}} : memref<?xi32>
// CHECK:                 memref.load %[[VAL:.*]][%{{.*}}] : memref<?xf32>
// CHECK-NEXT:            memref.load %[[VAL]][%{{.*}}] : memref<?xf32>
// CHECK-NEXT:            memref.load %[[X]][%{{.*}}] : memref<?xf32>
// CHECK-NEXT:            memref.load %[[X]][%{{.*}}] : memref<?xf32>
// CHECK-NOT:             memref.load
// CHECK:                 memref.store %{{.*}}, %[[STAGED]][%[[T]]]
// CHECK-NEXT:            memref.store %{{.*}}, %[[STAGED]]
// CHECK-NEXT:          }
// CHECK-NEXT:          gpu.barrier

// The lanes of a row sum up what is staged, and load ahead for the next row.  All threads make the same trips, so that all meet.
// CHECK-NEXT:          %[[TRIPS:.*]] = arith.ceildivui %{{.*}}, %[[GROUPS]]
// CHECK-NEXT:          scf.for %{{.*}} = %c0 to %[[TRIPS]] step %c1 iter_args(%[[FROM:.*]] = %[[LO]], %[[TO:.*]] = %[[HI]])
// CHECK:                 %[[LO1:.*]] = memref.load %{{.*}} : memref<?xindex>
// CHECK:                 %[[HI1:.*]] = memref.load %{{.*}} : memref<?xindex>
// CHECK:                 %[[LANES:.*]] = arith.shli %c1, %[[SHIFT]]
// CHECK:                 %[[P:.*]] = scf.for %[[E:.*]] = %{{.*}} to %{{.*}} step %[[LANES]] iter_args(%[[A:.*]] = %cst)
// CHECK-NEXT:              %[[TERM:.*]] = memref.load %[[STAGED]][%[[E]]]
// CHECK-NEXT:              %[[NEXT:.*]] = arith.addf %[[A]], %[[TERM]]
// CHECK-NEXT:              scf.yield %[[NEXT]]
// CHECK-NEXT:            }
// CHECK-NEXT:            %[[TOTAL:.*]] = "ditto.group_reduce"(%[[P]], %[[SHIFT]]) {kind = "arith.addf"}
// CHECK:                 scf.if
// CHECK-NEXT:              %[[OLD:.*]] = memref.load %[[Y]][%[[I:.*]]]
// CHECK-NEXT:              %[[NEW:.*]] = arith.addf %[[OLD]], %[[TOTAL]]
// CHECK-NEXT:              memref.store %[[NEW]], %[[Y]][%[[I]]]
// CHECK:                 scf.yield %[[LO1]], %[[HI1]]
// CHECK:           } {mapping = [#gpu.thread<linear_dim_0>]}
// CHECK-NEXT:    } {mapping = [#gpu.block<linear_dim_0>]}

// Coordinates and values are staged, and what they gather is gathered by the lanes of the row.
// ENTRIES-LABEL: func.func @spmv(
// ENTRIES:         } else {
// ENTRIES:           %[[JS:.*]] = "ditto.shared_buffer"() : () -> memref<128xi32, 3>
// ENTRIES-NEXT:      %[[VS:.*]] = "ditto.shared_buffer"() : () -> memref<128xf32, 3>
// ENTRIES:           scf.if
// ENTRIES-COUNT-4:     memref.load
// ENTRIES-NOT:         memref.load
// ENTRIES-COUNT-4:     memref.store
// ENTRIES:           gpu.barrier
// ENTRIES:             scf.for %{{.*}} iter_args
// ENTRIES:             scf.for %[[E:.*]] = %{{.*}} iter_args
// ENTRIES-NEXT:          %[[J:.*]] = memref.load %[[JS]][%[[E]]]
// ENTRIES-NEXT:          %[[V:.*]] = memref.load %[[VS]][%[[E]]]
// ENTRIES:               memref.load %arg1[
// ENTRIES:             "ditto.group_reduce"

// One kernel, a block of threads for each block of rows.
// KERNEL:      gpu.func @spmv(
// KERNEL-SAME:   ditto.access = "readwrite", ditto.name = "A.row_blocks.tickets"
// KERNEL-SAME:   ditto.grid = ["A.row_blocks.shift.dim0", "1", "1"]
// KERNEL-NOT:  gpu.func
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
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
