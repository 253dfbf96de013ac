// RUN: ditto-opt -p 'segment-rows{length=64},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'segment-rows{length=64},rows-to-subgroups{lanes=8},map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNELS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// The arrays that the host makes are two more arguments.  A segment's row is complemented where the row was cut: its pieces
// meet in atomic additions; a whole row is stored as before, and only then is its old value read.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_segments.rows", ditto.recipe = "row-segments{level=1 length=64}"},
// CHECK-SAME:    %[[POS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_segments.positions", ditto.part = "positions", ditto.recipe = "row-segments{level=1 length=64}"})
// CHECK-NOT:     sparse_tensor.positions
// CHECK:         %[[COUNT:.*]] = memref.dim %[[ROWS]], %c0
// CHECK-NEXT:    scf.for %[[G:.*]] = %c0 to %[[COUNT]] step %c1 {
// CHECK-NEXT:      %[[TAG:.*]] = memref.load %[[ROWS]][%[[G]]]
// CHECK-NEXT:      %[[CUT:.*]] = arith.cmpi slt, %[[TAG]], %c0_i32
// CHECK-NEXT:      %[[OTHER:.*]] = arith.xori %[[TAG]], %c-1_i32
// CHECK-NEXT:      %[[ROW:.*]] = arith.select %[[CUT]], %[[OTHER]], %[[TAG]]
// CHECK-NEXT:      %[[I:.*]] = arith.index_castui %[[ROW]]
// CHECK-NEXT:      %[[P0:.*]] = memref.load %[[POS]][%[[G]]]
// CHECK-NEXT:      %[[LO:.*]] = arith.index_castui %[[P0]]
// CHECK-NEXT:      %[[G1:.*]] = arith.addi %[[G]], %c1
// CHECK-NEXT:      %[[P1:.*]] = memref.load %[[POS]][%[[G1]]]
// CHECK-NEXT:      %[[HI:.*]] = arith.index_castui %[[P1]]
// CHECK-NEXT:      %[[S:.*]] = scf.for %{{.*}} = %[[LO]] to %[[HI]] step %c1 iter_args(%{{.*}} = %cst) -> (f32) {
// CHECK:           scf.if %[[CUT]] {
// CHECK-NEXT:        memref.atomic_rmw addf %[[S]], %[[Y]][%[[I]]]
// CHECK-NEXT:      } else {
// CHECK-NEXT:        %[[Y0:.*]] = memref.load %[[Y]][%[[I]]]
// CHECK-NEXT:        %[[N:.*]] = arith.addf %[[Y0]], %[[S]]
// CHECK-NEXT:        memref.store %[[N]], %[[Y]][%[[I]]]
// CHECK-NEXT:      }
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

// Sums start from a constant: a kernel of its own writes it to the rows that were cut, before.
// CHECK-LABEL: func.func @spmm(
// CHECK-SAME:    %[[CUTS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "arg0.row_segments.cut", ditto.recipe = "row-segments{level=1 length=64}"})
// CHECK:         %[[CUT:.*]] = memref.dim %[[CUTS]], %c0
// CHECK:         %[[ALL:.*]] = arith.muli %[[CUT]], %c8
// CHECK:         scf.forall
// CHECK:           scf.forall (%{{.*}}) in (256) {
// CHECK:             %[[ROW:.*]] = memref.load %[[CUTS]]
// CHECK:             %[[I:.*]] = arith.index_castui %[[ROW]]
// CHECK:             memref.store %cst, %arg2[%[[I]], %{{.*}}]
// CHECK:         } {ditto.kernel = "_init", mapping = [#gpu.block<linear_dim_0>]}
// CHECK:         scf.for
// CHECK:           scf.for %[[K:.*]] = %c0 to %c8 step %c1 {
// CHECK:             %[[S:.*]] = scf.for
// CHECK:             scf.if
// CHECK-NEXT:          memref.atomic_rmw addf %[[S]], %arg2[%{{.*}}, %[[K]]]
// CHECK-NEXT:        } else {
// CHECK-NEXT:          memref.store %[[S]], %arg2[%{{.*}}, %[[K]]]

// Lanes share a segment as they share a row; the output is read and written.
// KERNELS:      gpu.func @spmv(
// KERNELS-SAME:   ditto.access = "readwrite", ditto.name = "arg2"
// KERNELS-SAME:   ditto.name = "A.row_segments.rows"
// KERNELS-SAME:   ditto.grid = ["ceildiv(A.row_segments.rows.dim0, 16)", "1", "1"]
// KERNELS:        "ditto.lane_reduce"
// KERNELS:        memref.atomic_rmw
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
