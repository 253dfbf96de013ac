// RUN: ditto-opt -p 'diagonals{factor=8},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'diagonals,rows-to-threads,map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNEL
// RUN: not ditto-opt -p 'diagonals,diagonals' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'diagonals,vectorize-entries' %s 2>&1 | FileCheck %s --check-prefix=VECTORS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// The host packs a value for each row of each occupied diagonal; of the operand itself nothing is read.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[OFF:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.row_diagonals.offsets", ditto.part = "coordinates", ditto.recipe = "row-diagonals{level=1 factor=8}"},
// CHECK-SAME:    %[[VAL:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.row_diagonals.values", ditto.part = "values", ditto.recipe = "row-diagonals{level=1 factor=8}"})
// CHECK-NOT:     sparse_tensor.{{positions|coordinates|values}}
// CHECK:         %[[M:.*]] = sparse_tensor.lvl %{{.*}}, %c0
// CHECK:         %[[DIAGONALS:.*]] = memref.dim %[[OFF]], %c0
// CHECK:         %[[N:.*]] = sparse_tensor.lvl %{{.*}}, %c1
// CHECK-NEXT:    %[[LAST:.*]] = arith.subi %[[N]], %c1
// CHECK-NEXT:    scf.for %[[I:.*]] = %c0 to %[[M]] step %c1 {
// CHECK-NEXT:      %[[SUM:.*]] = scf.for %[[D:.*]] = %c0 to %[[DIAGONALS]] step %c1 iter_args(%[[A:.*]] = %cst) -> (f32) {

// The column of the row, or the nearest one there is: what is loaded there waits for no value.
// CHECK-NEXT:        %[[O:.*]] = memref.load %[[OFF]][%[[D]]]
// CHECK-NEXT:        %[[WIDE:.*]] = arith.index_cast %[[O]] : i32 to index
// CHECK-NEXT:        %[[J:.*]] = arith.addi %[[I]], %[[WIDE]]
// CHECK-NEXT:        %[[LOW:.*]] = arith.maxsi %[[J]], %c0
// CHECK-NEXT:        %[[COLUMN:.*]] = arith.minsi %[[LOW]], %[[LAST]]
// CHECK-NEXT:        %[[START:.*]] = arith.muli %[[D]], %[[M]]
// CHECK-NEXT:        %[[PLACE:.*]] = arith.addi %[[START]], %[[I]]
// CHECK-NEXT:        %[[V:.*]] = memref.load %[[VAL]][%[[PLACE]]]

// All bits of a value say that the row has no entry: what is loaded there is not added.
// CHECK:             %[[BITS:.*]] = arith.bitcast %[[V]] : f32 to i32
// CHECK-NEXT:        %[[IN:.*]] = arith.cmpi ne, %[[BITS]], %c-1_i32
// CHECK:             %[[B:.*]] = memref.load %[[X]]
// CHECK-NEXT:        %[[T:.*]] = arith.mulf %[[V]], %[[B]]
// CHECK-NEXT:        %[[NEW:.*]] = arith.addf %[[A]], %[[T]]
// CHECK-NEXT:        %[[TAKEN:.*]] = arith.select %[[IN]], %[[NEW]], %[[A]]
// CHECK-NEXT:        scf.yield %[[TAKEN]]
// CHECK-NEXT:      }
// CHECK-NEXT:      memref.store %[[SUM]], %[[Y]][%[[I]]]

// KERNEL:      gpu.func @spmv(
// KERNEL-NOT:    "A.positions1"
// KERNEL-SAME:   ditto.name = "A.row_diagonals.values"
// KERNEL-SAME:   ditto.grid = ["ceildiv(A.lvl0, 128)", "1", "1"]

// What a later pass says of it.
// TWICE:   ditto-opt: not-applicable: diagonals: does not go with rows stored in slices, diagonals or at one width
// VECTORS: ditto-opt: not-applicable: vectorize-entries: does not go with rows stored in slices, diagonals or at one width
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
