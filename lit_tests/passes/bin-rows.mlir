// RUN: ditto-opt -p 'bin-rows{limit=32 length=1024 threads=128},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'bin-rows{length=1073741824},canonicalize,cse' %s | FileCheck %s --check-prefix=WHOLE
// RUN: ditto-opt -p 'bin-rows,rows-to-subgroups{lanes=8},unroll{factor=2},map-blocks,bound-launch{blocks=4},canonicalize,cse' %s | FileCheck %s --check-prefix=LATER
// RUN: ditto-opt -p 'bin-rows,rows-to-threads,map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNELS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Rows of more than 32 entries have none in the nest, which stores what their sums start from.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32> {ditto.name = "y"},
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.long_segments.rows", ditto.recipe = "long-segments{level=1 limit=32 length=1024}"},
// CHECK-SAME:    %[[FIRST:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.long_segments.first", ditto.part = "positions", ditto.recipe = "long-segments{level=1 limit=32 length=1024}"},
// CHECK-SAME:    %[[LAST:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.long_segments.last", ditto.part = "positions", ditto.recipe = "long-segments{level=1 limit=32 length=1024}"})
// CHECK:         %[[CRD:.*]] = sparse_tensor.coordinates
// CHECK:         %[[VAL:.*]] = sparse_tensor.values
// CHECK:         scf.for %[[I:.*]] = %c0 to %{{.*}} step %c1 {
// CHECK:           %[[LO:.*]] = memref.load %[[POS:.*]][%[[I]]]
// CHECK:           %[[HI:.*]] = memref.load %[[POS]]
// CHECK:           %[[Y0:.*]] = memref.load %[[Y]][%[[I]]]
// CHECK-NEXT:      %[[COUNT:.*]] = arith.subi %[[HI]], %[[LO]]
// CHECK-NEXT:      %[[LONG:.*]] = arith.cmpi ugt, %[[COUNT]], %c32
// CHECK-NEXT:      %[[END:.*]] = arith.select %[[LONG]], %[[LO]], %[[HI]]
// CHECK-NEXT:      %[[S:.*]] = scf.for %{{.*}} = %[[LO]] to %[[END]] step %c1 iter_args(%{{.*}} = %[[Y0]]) -> (f32) {
// CHECK:           memref.store %[[S]], %[[Y]][%[[I]]]
// CHECK-NEXT:    }

// After it a block a piece of a long row: its threads take the entries in turn, and thread 0 adds their total.
// CHECK-NEXT:    %[[PIECES:.*]] = memref.dim %[[ROWS]], %c0
// CHECK-NEXT:    scf.forall (%[[G:.*]]) in (%[[PIECES]]) {
// CHECK-NEXT:      scf.forall (%[[T:.*]]) in (128) {
// CHECK-NEXT:        %[[R:.*]] = memref.load %[[ROWS]][%[[G]]]
// CHECK-NEXT:        %[[ROW:.*]] = arith.index_castui %[[R]]
// CHECK-NEXT:        %[[F:.*]] = memref.load %[[FIRST]][%[[G]]]
// CHECK-NEXT:        %[[FROM:.*]] = arith.index_castui %[[F]]
// CHECK-NEXT:        %[[START:.*]] = arith.addi %[[FROM]], %[[T]]
// CHECK-NEXT:        %[[L:.*]] = memref.load %[[LAST]][%[[G]]]
// CHECK-NEXT:        %[[TO:.*]] = arith.index_castui %[[L]]
// CHECK-NEXT:        %[[PART:.*]] = scf.for %[[P:.*]] = %[[START]] to %[[TO]] step %c128 iter_args(%[[A:.*]] = %cst) -> (f32) {
// CHECK-NEXT:          %[[J:.*]] = memref.load %[[CRD]][%[[P]]]
// CHECK-NEXT:          %[[V:.*]] = memref.load %[[VAL]][%[[P]]]
// CHECK-NEXT:          %[[B:.*]] = memref.load %[[X]][%[[J]]]
// CHECK-NEXT:          %[[TERM:.*]] = arith.mulf %[[V]], %[[B]]
// CHECK-NEXT:          %[[N:.*]] = arith.addf %[[A]], %[[TERM]]
// CHECK-NEXT:          scf.yield %[[N]]
// CHECK-NEXT:        }
// CHECK-NEXT:        %[[TOTAL:.*]] = "ditto.block_reduce"(%[[PART]]) {kind = "arith.addf", threads = 128 : i32} : (f32) -> f32
// CHECK-NEXT:        %[[ZEROTH:.*]] = arith.cmpi eq, %[[T]], %c0
// CHECK-NEXT:        scf.if %[[ZEROTH]] {
// CHECK-NEXT:          memref.atomic_rmw addf %[[TOTAL]], %[[Y]][%[[ROW]]]
// CHECK-NEXT:        }
// CHECK-NEXT:      } {mapping = [#gpu.thread<linear_dim_0>]}
// CHECK-NEXT:    } {ditto.kernel = "_long", mapping = [#gpu.block<linear_dim_0>]}
// CHECK-NEXT:    return

// One block a row, whatever its length: the host is told not to cut.
// WHOLE-LABEL: func.func @spmv(
// WHOLE-SAME:    ditto.recipe = "long-segments{level=1 limit=256 length=1073741824}"

// Later passes schedule the short rows and leave the other kernel alone.
// LATER-LABEL: func.func @spmv(
// LATER:         scf.forall
// LATER:           scf.forall (%{{.*}}) in (128) {
// LATER:             arith.select
// LATER:             } {ditto.unrolled}
// LATER:             "ditto.lane_reduce"
// LATER:         } {mapping = [#gpu.block<linear_dim_0>], nvvm.minctasm = 4 : i32}
// LATER:         scf.forall
// LATER:           scf.forall (%{{.*}}) in (256) {
// LATER-NOT:         ditto.unrolled
// LATER:             "ditto.block_reduce"
// LATER:         } {ditto.kernel = "_long", mapping = [#gpu.block<linear_dim_0>]}

// Two kernels.  The second walks pieces: it needs no positions of rows, and its grid is the number of pieces.
// KERNELS:      gpu.func @spmv(
// KERNELS-SAME:   ditto.name = "A.positions1"
// KERNELS-SAME:   ditto.access = "readwrite", ditto.name = "y"
// KERNELS-SAME:   ditto.grid = ["ceildiv(A.lvl0, 128)", "1", "1"], known_block_size = array<i32: 128, 1, 1>
// KERNELS:      gpu.func @spmv_long(
// KERNELS-NOT:    ditto.name = "A.positions1"
// KERNELS-SAME:   ditto.access = "readwrite", ditto.name = "y"
// KERNELS-SAME:   ditto.name = "A.long_segments.rows", ditto.recipe = "long-segments{level=1 limit=256 length=4096}", ditto.shape = ["A.long_segments.rows.dim0"], llvm.align = 16 : i64, llvm.noalias, llvm.readonly
// KERNELS-SAME:   ditto.grid = ["A.long_segments.rows.dim0", "1", "1"], known_block_size = array<i32: 256, 1, 1>
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32> {ditto.name = "y"}) {
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

// Sums that start from a constant start from it in the nest; a long row's pieces start from 0.
// CHECK-LABEL: func.func @filled(
// CHECK-DAG:     %[[START:.*]] = arith.constant 1.5
// CHECK-DAG:     %[[ZERO:.*]] = arith.constant 0.0
// CHECK:         scf.for
// CHECK:           scf.for {{.*}} iter_args(%{{.*}} = %[[START]])
// CHECK:         scf.forall
// CHECK:           scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO]])
// CHECK-NOT:     ditto.kernel = "_init"
func.func @filled(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %start = arith.constant 1.5 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %start) -> (f32) {
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
