// RUN: ditto-opt -p 'ell-rows{offsets=16},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'ell-rows{factor=2},canonicalize,cse' %s | FileCheck %s --check-prefix=PLAIN
// RUN: ditto-opt -p 'ell-rows,rows-to-threads,map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNEL
// RUN: not ditto-opt -p 'ell-rows,segment-rows' %s 2>&1 | FileCheck %s --check-prefix=SEGMENTS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[WIDTHS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.equal_rows.widths", ditto.part = "positions", ditto.recipe = "equal-rows{level=1 factor=4 bits=16}"},
// CHECK-SAME:    %[[BASES:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.equal_rows.bases", ditto.recipe = "equal-rows{{[^"]*}}"},
// CHECK-SAME:    %[[CRD:[a-z0-9]*]]: memref<?xi16> {ditto.name = "A.equal_rows.coordinates", ditto.part = "coordinates", ditto.recipe = "equal-rows{{[^"]*}}"},
// CHECK-SAME:    %[[VAL:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.equal_rows.values", ditto.part = "values", ditto.recipe = "equal-rows{{[^"]*}}"})
// CHECK-NOT:     sparse_tensor.{{positions|coordinates|values}}

// All rows are as wide; entry k of all rows comes before entry k + 1 of any.
// CHECK:         scf.for %[[I:.*]] = %c0 to %[[M:.*]] step %c1 {
// CHECK-NEXT:      %[[W:.*]] = memref.load %[[WIDTHS]][%c0]
// CHECK-NEXT:      %[[WIDTH:.*]] = arith.index_castui %[[W]]
// CHECK-NEXT:      %[[SLICE:.*]] = arith.divui %[[I]], %c32
// CHECK-NEXT:      %[[BASE:.*]] = memref.load %[[BASES]][%[[SLICE]]]
// CHECK-NEXT:      %[[SUM:.*]] = scf.for %[[K:.*]] = %c0 to %[[WIDTH]] step %c1 iter_args(%[[A:.*]] = %cst) -> (f32) {
// CHECK-NEXT:        %[[START:.*]] = arith.muli %[[K]], %[[M]]
// CHECK-NEXT:        %[[P:.*]] = arith.addi %[[START]], %[[I]]
// CHECK-NEXT:        %[[J:.*]] = memref.load %[[CRD]][%[[P]]]
// CHECK-NEXT:        %[[V:.*]] = memref.load %[[VAL]][%[[P]]]
// CHECK-NEXT:        %[[IN:.*]] = arith.cmpi ne, %[[J]], %c-1_i16
// CHECK-NEXT:        %[[OFFSET:.*]] = arith.select %[[IN]], %[[J]], %c0_i16
// CHECK-NEXT:        %[[WIDE:.*]] = arith.extui %[[OFFSET]] : i16 to i32
// CHECK-NEXT:        %[[COLUMN:.*]] = arith.addi %[[BASE]], %[[WIDE]]
// CHECK:             %[[N:.*]] = arith.addf %[[A]], %{{.*}}
// CHECK-NEXT:        %[[TAKEN:.*]] = arith.select %[[IN]], %[[N]], %[[A]]
// CHECK-NEXT:        scf.yield %[[TAKEN]]
// CHECK-NEXT:      }
// CHECK-NEXT:      memref.store %[[SUM]], %[[Y]][%[[I]]]

// PLAIN-LABEL: func.func @spmv(
// PLAIN-NOT:     A.equal_rows.bases
// PLAIN-SAME:    memref<?xi32> {ditto.name = "A.equal_rows.coordinates", ditto.part = "coordinates", ditto.recipe = "equal-rows{level=1 factor=2 bits=32}"}

// KERNEL:      gpu.func @spmv(
// KERNEL-NOT:    "A.positions1"
// KERNEL-SAME:   ditto.name = "A.equal_rows.values"
// KERNEL-SAME:   ditto.grid = ["ceildiv(A.lvl0, 128)", "1", "1"]

// What a later pass says of it.
// SEGMENTS: ditto-opt: not-applicable: segment-rows: does not go with rows stored in slices, diagonals or at one width
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %p0 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %p0 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %p1 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %p1 : i32 to index
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
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
