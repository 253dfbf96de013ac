// RUN: ditto-opt -p 'lower-triangle,canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'lower-triangle,narrow-coordinates,rows-to-subgroups{lanes=8},map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNEL
// RUN: ditto-opt -p 'lower-triangle,rows-to-threads,unroll{factor=2 tail=clamp},canonicalize,cse' %s | FileCheck %s --check-prefix=CLAMP
// RUN: not ditto-opt -p 'lower-triangle,lower-triangle' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'lower-triangle,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=SLICES
// RUN: not ditto-opt -p 'lower-triangle,rows-to-subgroups,share-loads' %s 2>&1 | FileCheck %s --check-prefix=SHARED

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// The host keeps one triangle; of the operand itself nothing is read.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[POS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.lower_triangle.positions", ditto.part = "positions", ditto.recipe = "lower-triangle{level=1}"},
// CHECK-SAME:    %[[CRD:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.lower_triangle.coordinates",
// CHECK-SAME:    %[[VAL:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.lower_triangle.values",
// CHECK-NOT:     sparse_tensor.{{positions|coordinates|values}}

// Sums start from a constant, which another kernel stores first.
// CHECK:         scf.forall
// CHECK:           memref.store %cst, %[[Y]]
// CHECK:         } {ditto.kernel = "_init", mapping = [#gpu.block<linear_dim_0>]}

// What the mirror images of a row multiply is loaded once; the sum of the row stays in a register.
// CHECK-NEXT:    scf.for %[[I:.*]] = %c0 to %{{.*}} step %c1 {
// CHECK:           memref.load %[[POS]][%[[I]]]
// CHECK:           %[[OWN:.*]] = memref.load %[[X]][%{{.*}}]
// CHECK-NEXT:      %[[SUM:.*]] = scf.for %[[P:.*]] = %{{.*}} to %{{.*}} step %c1 iter_args(%[[A:.*]] = %cst) -> (f32) {
// CHECK-NEXT:        %[[C:.*]] = memref.load %[[CRD]][%[[P]]]
// CHECK-NEXT:        %[[J:.*]] = arith.index_castui %[[C]] : i32 to index
// CHECK-NEXT:        %[[V:.*]] = memref.load %[[VAL]][%[[P]]]
// CHECK-NEXT:        %[[B:.*]] = memref.load %[[X]][%[[J]]]
// CHECK-NEXT:        %[[T:.*]] = arith.mulf %[[V]], %[[B]]
// CHECK-NEXT:        %[[N:.*]] = arith.addf %[[A]], %[[T]]

// An entry on the diagonal is its own mirror image.
// CHECK-NEXT:        %[[BELOW:.*]] = arith.cmpi ne, %[[J]], %[[I]]
// CHECK-NEXT:        scf.if %[[BELOW]] {
// CHECK-NEXT:          %[[U:.*]] = arith.mulf %[[V]], %[[OWN]]
// CHECK-NEXT:          %[[W:.*]] = arith.addf %[[U]], %cst
// CHECK-NEXT:          memref.atomic_rmw addf %[[W]], %[[Y]][%[[J]]] {ditto.mirrored}
// CHECK-NEXT:        }
// CHECK-NEXT:        scf.yield %[[N]]
// CHECK-NEXT:      }
// CHECK-NEXT:      memref.atomic_rmw addf %[[SUM]], %[[Y]][%[[I]]] : (f32, memref<?xf32>) -> f32

// All lanes add mirror images, the first one the sum; rows past the last are walked, and add nothing.
// KERNEL:      gpu.func @spmv_init(
// KERNEL:      gpu.func @spmv(
// KERNEL-SAME:   ditto.recipe = "lower-triangle{level=1}|row-offsets{level=1 bits=16}"
// KERNEL:        %[[INSIDE:.*]] = arith.cmpi ult
// KERNEL:        %[[PART:.*]] = scf.for
// KERNEL:          %[[BELOW:.*]] = arith.cmpi ne
// KERNEL-NEXT:     %[[ADDS:.*]] = arith.andi %[[INSIDE]], %[[BELOW]]
// KERNEL-NEXT:     scf.if %[[ADDS]] {
// KERNEL:            memref.atomic_rmw {{.*}} {ditto.mirrored}
// KERNEL:        %[[SUM:.*]] = "ditto.lane_reduce"(%[[PART]])
// KERNEL:        memref.atomic_rmw addf %[[SUM]]

// What is past the end is loaded twice and added once.
// CLAMP:       %[[TAKEN:.*]] = arith.cmpi slt
// CLAMP:       %[[BELOW:.*]] = arith.cmpi ne
// CLAMP:       memref.atomic_rmw {{.*}} {ditto.mirrored}
// CLAMP:       %[[ADDS:.*]] = arith.andi %[[TAKEN]], %[[BELOW]]
// CLAMP-NEXT:  scf.if %[[ADDS]] {
// CLAMP:         memref.atomic_rmw {{.*}} {ditto.mirrored}

// TWICE:  ditto-opt: not-applicable: lower-triangle: does not go with one triangle of a symmetric matrix, whose entries are added to two rows
// SLICES: ditto-opt: not-applicable: slice-rows: does not go with one triangle of a symmetric matrix
// SHARED: ditto-opt: not-applicable: share-loads: does not go with one triangle of a symmetric matrix
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
