// RUN: ditto-opt -p 'reorder{rows=rcm},canonicalize,cse' %s | FileCheck %s --check-prefix=ROWS
// RUN: ditto-opt -p 'reorder{rows=none columns=degree},canonicalize,cse' %s | FileCheck %s --check-prefix=COLUMNS
// RUN: ditto-opt -p 'reorder{rows=degree columns=degree},slice-rows{height=32 window=1024},rows-to-threads,map-blocks,outline-kernels' %s | FileCheck %s --check-prefix=KERNELS

// Rows are walked as the host has put them; what a row reads and stores otherwise is that of the row that it was.  Nothing of
// the packed operand is read any more.
// ROWS-LABEL: func.func @spmv(
// ROWS-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// ROWS-SAME:    %[[ORDER:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.reorder.rows", ditto.recipe = "reorder{level=1 rows=rcm columns=none}"},
// ROWS-SAME:    %[[POS:[a-z0-9]*]]: memref<?xindex> {ditto.name = "A.reorder.positions", ditto.part = "positions",
// ROWS-SAME:    %[[CRD:[a-z0-9]*]]: memref<?xindex> {ditto.name = "A.reorder.coordinates", ditto.part = "coordinates",
// ROWS-SAME:    %[[VAL:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.reorder.values", ditto.part = "values",
// ROWS-NOT:     sparse_tensor
// ROWS:         %[[COUNT:.*]] = memref.dim %[[ORDER]], %c0
// ROWS-NEXT:    scf.for %[[SLOT:.*]] = %c0 to %[[COUNT]] step %c1 {
// ROWS-NEXT:      %[[R:.*]] = memref.load %[[ORDER]][%[[SLOT]]]
// ROWS-NEXT:      %[[I:.*]] = arith.index_castui %[[R]]
// ROWS-NEXT:      %[[LO:.*]] = memref.load %[[POS]][%[[SLOT]]]
// ROWS-NEXT:      %[[NEXT:.*]] = arith.addi %[[SLOT]], %c1
// ROWS-NEXT:      %[[HI:.*]] = memref.load %[[POS]][%[[NEXT]]]
// ROWS-NEXT:      %[[Y0:.*]] = memref.load %[[Y]][%[[I]]]
// ROWS-NEXT:      %[[S:.*]] = scf.for %[[P:.*]] = %[[LO]] to %[[HI]] step %c1 iter_args(%{{.*}} = %[[Y0]]) -> (f32) {
// ROWS-NEXT:        %[[J:.*]] = memref.load %[[CRD]][%[[P]]]
// ROWS-NEXT:        memref.load %[[VAL]][%[[P]]]
// ROWS-NEXT:        memref.load %[[X]][%[[J]]]
// ROWS:           memref.store %[[S]], %[[Y]][%[[I]]]

// Columns have new numbers, and x is copied into their order first.  The rows are where they were.
// COLUMNS-LABEL: func.func @spmv(
// COLUMNS-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// COLUMNS-SAME:    %[[GATHERS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.reorder.gathers",
// COLUMNS-SAME:    %[[COPY:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.reorder.arg1.gathered.copy", ditto.recipe = "reorder{level=1 rows=none columns=degree}|gathered{level=1 width=1}", ditto.workspace})
// COLUMNS:         scf.forall
// COLUMNS:             %[[C:.*]] = memref.load %[[GATHERS]][%[[NEW:.*]]]
// COLUMNS-NEXT:        %[[OLD:.*]] = arith.index_castui %[[C]]
// COLUMNS-NEXT:        %[[E:.*]] = memref.load %[[X]][%[[OLD]]]
// COLUMNS-NEXT:        memref.store %[[E]], %[[COPY]][%[[NEW]]]
// COLUMNS:         } {ditto.kernel = "_gather", mapping = [#gpu.block<linear_dim_0>]}
// COLUMNS:         scf.for %[[I:.*]] = %c0
// COLUMNS-NOT:       memref.load %[[X]]
// COLUMNS:           memref.load %[[COPY]]
// COLUMNS:           memref.store %{{.*}}, %[[Y]][%[[I]]]

// A pass after it has the host work on what it made: the recipes are one after the other.
// KERNELS:      gpu.func @spmv_gather(
// KERNELS:      gpu.func @spmv(
// KERNELS-NOT:    "A.positions1"
// KERNELS-SAME:   ditto.name = "A.reorder.sliced_rows.starts", ditto.recipe = "reorder{level=1 rows=degree columns=degree}|sliced-rows{level=1 height=32 window=1024 bits=64}"
// KERNELS-NOT:    "A.values"
#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

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
