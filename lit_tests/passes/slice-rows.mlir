// RUN: ditto-opt -p 'slice-rows{height=16 window=128 offsets=16},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'slice-rows,canonicalize,cse' %s | FileCheck %s --check-prefix=PLAIN
// RUN: ditto-opt -p 'slice-rows,rows-to-threads,map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNEL

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// The host packs the entries: slices of 16 rows, sorted by length within windows of 128, and columns as 16-bit offsets.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[STARTS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.sliced_rows.starts", ditto.part = "positions", ditto.recipe = "sliced-rows{level=1 height=16 window=128 bits=16}"},
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.sliced_rows.rows", ditto.recipe = "sliced-rows{{[^"]*}}"},
// CHECK-SAME:    %[[BASES:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.sliced_rows.bases", ditto.recipe = "sliced-rows{{[^"]*}}"},
// CHECK-SAME:    %[[CRD:[a-z0-9]*]]: memref<?xi16> {ditto.name = "A.sliced_rows.coordinates", ditto.part = "coordinates", ditto.recipe = "sliced-rows{{[^"]*}}"},
// CHECK-SAME:    %[[VAL:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.sliced_rows.values", ditto.part = "values", ditto.recipe = "sliced-rows{{[^"]*}}"})
// CHECK-NOT:     sparse_tensor.{{positions|coordinates|values}}

// A slot walks its slice from its own place in steps of the height; so do its neighbours, side by side.
// CHECK:         scf.for %[[SLOT:.*]] = %c0 to %{{.*}} step %c1 {
// CHECK-NEXT:      %[[SLICE:.*]] = arith.divui %[[SLOT]], %c16
// CHECK-NEXT:      %[[BASE:.*]] = memref.load %[[BASES]][%[[SLICE]]]
// CHECK-NEXT:      %[[PLACE:.*]] = arith.remui %[[SLOT]], %c16
// CHECK-NEXT:      %[[NEXT:.*]] = arith.addi %[[SLICE]], %c1
// CHECK-NEXT:      %[[S0:.*]] = memref.load %[[STARTS]][%[[SLICE]]]
// CHECK-NEXT:      %[[I0:.*]] = arith.index_castui %[[S0]]
// CHECK-NEXT:      %[[LO:.*]] = arith.addi %[[I0]], %[[PLACE]]
// CHECK-NEXT:      %[[S1:.*]] = memref.load %[[STARTS]][%[[NEXT]]]
// CHECK-NEXT:      %[[I1:.*]] = arith.index_castui %[[S1]]
// CHECK-NEXT:      %[[HI:.*]] = arith.addi %[[I1]], %[[PLACE]]
// CHECK-NEXT:      %[[R:.*]] = memref.load %[[ROWS]][%[[SLOT]]]
// CHECK-NEXT:      %[[ROW:.*]] = arith.index_castui %[[R]]
// CHECK-NEXT:      %[[Y0:.*]] = memref.load %[[Y]][%[[ROW]]]
// CHECK-NEXT:      %[[SUM:.*]] = scf.for %[[P:.*]] = %[[LO]] to %[[HI]] step %c16 iter_args(%[[A:.*]] = %[[Y0]]) -> (f32) {

// All bits of a coordinate say that the row is at its end: what is loaded then (the slice's least column) is not added.
// CHECK-NEXT:        %[[J:.*]] = memref.load %[[CRD]][%[[P]]]
// CHECK-NEXT:        %[[V:.*]] = memref.load %[[VAL]][%[[P]]]
// CHECK-NEXT:        %[[IN:.*]] = arith.cmpi ne, %[[J]], %c-1_i16
// CHECK-NEXT:        %[[OFFSET:.*]] = arith.select %[[IN]], %[[J]], %c0_i16
// CHECK-NEXT:        %[[WIDE:.*]] = arith.extui %[[OFFSET]] : i16 to i32
// CHECK-NEXT:        %[[COLUMN:.*]] = arith.addi %[[BASE]], %[[WIDE]]
// CHECK-NEXT:        %[[AT:.*]] = arith.index_castui %[[COLUMN]]
// CHECK-NEXT:        %[[B:.*]] = memref.load %[[X]][%[[AT]]]
// CHECK-NEXT:        %[[T:.*]] = arith.mulf %[[V]], %[[B]]
// CHECK-NEXT:        %[[N:.*]] = arith.addf %[[A]], %[[T]]
// CHECK-NEXT:        %[[TAKEN:.*]] = arith.select %[[IN]], %[[N]], %[[A]]
// CHECK-NEXT:        scf.yield %[[TAKEN]]
// CHECK-NEXT:      }
// CHECK-NEXT:      memref.store %[[SUM]], %[[Y]][%[[ROW]]]

// Rows that are not sorted are where they were, and coordinates of their own width are columns.
// PLAIN-LABEL: func.func @spmv(
// PLAIN-NOT:     A.sliced_rows.rows
// PLAIN-NOT:     A.sliced_rows.bases
// PLAIN-SAME:    %[[CRD:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.sliced_rows.coordinates", ditto.part = "coordinates", ditto.recipe = "sliced-rows{level=1 height=32 window=1 bits=32}"}
// PLAIN:         scf.for %[[I:.*]] = %c0
// PLAIN:           memref.load %arg2[%[[I]]]
// PLAIN:           scf.for %{{.*}} step %c32
// PLAIN-NEXT:        %[[J:.*]] = memref.load %[[CRD]]
// PLAIN:             %[[IN:.*]] = arith.cmpi ne, %[[J]], %c-1_i32
// PLAIN-NEXT:        %[[C:.*]] = arith.select %[[IN]], %[[J]], %c0_i32
// PLAIN-NEXT:        arith.index_castui %[[C]]
// PLAIN:           memref.store %{{.*}}, %arg2[%[[I]]]

// The kernel takes the packed arrays alone, and as many threads as there are rows.
// KERNEL:      gpu.func @spmv(
// KERNEL-NOT:    "A.values"
// KERNEL-SAME:   ditto.name = "A.sliced_rows.values"
// KERNEL-SAME:   ditto.grid = ["ceildiv(A.lvl0, 128)", "1", "1"]
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

// The slices are the same for all dense columns.
// CHECK-LABEL: func.func @spmm(
// CHECK:         scf.for %{{.*}} = %c0 to %{{.*}} step %c1 {
// CHECK:           %[[PLACE:.*]] = arith.remui
// CHECK:           %[[LO:.*]] = arith.addi %{{.*}}, %[[PLACE]] : index
// CHECK:           %[[HI:.*]] = arith.addi %{{.*}}, %[[PLACE]] : index
// CHECK:           scf.for %[[K:.*]] = %c0 to %c8 step %c1 {
// CHECK-NEXT:        scf.for %{{.*}} = %[[LO]] to %[[HI]] step %c16 iter_args(%[[A:.*]] = %cst)
// CHECK:               memref.load %arg1[%{{.*}}, %[[K]]]
// CHECK:               arith.select %{{.*}}, %{{.*}}, %[[A]] : f32
// CHECK:             memref.store %{{.*}}, %arg2[%{{.*}}, %[[K]]]
func.func @spmm(%A: tensor<?x?xf32, #CSR>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %c = memref.load %crd[%p] : memref<?xi32>
        %j = arith.index_castui %c : i32 to index
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
