// RUN: ditto-opt -p 'narrow-coordinates{bits=8},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'narrow-coordinates,segment-rows,vectorize-entries,canonicalize,cse' %s | FileCheck %s --check-prefix=THEN
// RUN: not ditto-opt -p 'narrow-coordinates,narrow-coordinates{bits=8}' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'narrow-coordinates,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=SLICES

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// Only columns are stored in another way: positions and values are the operand's own.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[BASES:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_offsets.bases", ditto.recipe = "row-offsets{level=1 bits=8}"},
// CHECK-SAME:    %[[CRD:[a-z0-9]*]]: memref<?xi8> {ditto.name = "A.row_offsets.coordinates", ditto.part = "coordinates", ditto.recipe = "row-offsets{level=1 bits=8}"})
// CHECK-NOT:     sparse_tensor.coordinates
// CHECK:         scf.for %[[I:.*]] = %c0
// CHECK-NEXT:      %[[BASE:.*]] = memref.load %[[BASES]][%[[I]]]
// CHECK:           scf.for %[[P:.*]] = %{{.*}} iter_args
// CHECK-NEXT:        %[[O:.*]] = memref.load %[[CRD]][%[[P]]]
// CHECK-NEXT:        %[[WIDE:.*]] = arith.extui %[[O]] : i8 to i32
// CHECK-NEXT:        %[[J:.*]] = arith.addi %[[BASE]], %[[WIDE]]
// CHECK-NEXT:        arith.index_castui %[[J]]

// The base of a segment is that of its row; offsets are loaded in vectors.
// THEN-LABEL: func.func @spmv(
// THEN-SAME:    %[[BASES:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_offsets.bases"
// THEN-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_segments.rows"
// THEN:           %[[ROW:.*]] = arith.index_castui
// THEN:           memref.load %[[BASES]][%[[ROW]]]
// THEN:             vector.load %{{.*}} : memref<?xi16>, vector<4xi16>

// What a later pass says of it.
// TWICE:    ditto-opt: not-applicable: narrow-coordinates: does not go with coordinates stored as offsets from the first of their row
// SLICES:   ditto-opt: not-applicable: slice-rows: does not go with coordinates stored as offsets from the first of their row
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
