// RUN: ditto-opt -p lower-fill,canonicalize,cse %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=64},lower-fill,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNELS

// One thread an element: its place in the matrix comes from its number.
// CHECK-LABEL: func.func @columns
// CHECK:         %[[M:.*]] = memref.dim %arg1, %c0 : memref<?x8xf32>
// CHECK:         %[[ALL:.*]] = arith.muli {{.*}}%[[M]]
// CHECK:         %[[BLOCKS:.*]] = arith.ceildivui %[[ALL]], %c256
// CHECK-NEXT:    scf.forall (%[[B:.*]]) in (%[[BLOCKS]]) {
// CHECK-NEXT:      scf.forall (%[[T:.*]]) in (256) {
// CHECK-NEXT:        %[[FIRST:.*]] = arith.muli %[[B]], %c256
// CHECK-NEXT:        %[[E:.*]] = arith.addi %[[FIRST]], %[[T]]
// CHECK-NEXT:        %[[INSIDE:.*]] = arith.cmpi ult, %[[E]], %[[ALL]]
// CHECK-NEXT:        scf.if %[[INSIDE]] {
// CHECK-NEXT:          %[[K:.*]] = arith.remui %[[E]], %c8
// CHECK-NEXT:          %[[I:.*]] = arith.divui %[[E]], %c8
// CHECK-NEXT:          memref.store %cst, %arg1[%[[I]], %[[K]]]
// CHECK-NEXT:        }
// CHECK-NEXT:      } {mapping = [#gpu.thread<linear_dim_0>]}
// CHECK-NEXT:    } {ditto.kernel = "_fill", mapping = [#gpu.block<linear_dim_0>]}
// CHECK-NOT:     linalg.fill

// The fill is a kernel of its own, launched first.
// KERNELS:       gpu.func @columns_fill(
// KERNELS-SAME:    ditto.access = "write", ditto.name = "arg1"
// KERNELS-SAME:    ditto.grid = ["ceildiv(({{.*}}arg1.dim0{{.*}}), 256)", "1", "1"], known_block_size = array<i32: 256, 1, 1>
// KERNELS:       gpu.func @columns(
// KERNELS-SAME:    known_block_size = array<i32: 64, 1, 1>
#DCSR = #sparse_tensor.encoding<{map = (i, j) -> (i : compressed, j : compressed)}>
func.func @columns(%A: tensor<?x?xf32, #DCSR>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %rows = sparse_tensor.coordinates %A {level = 0 : index} : tensor<?x?xf32, #DCSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #DCSR> to memref<?xf32>
  linalg.fill ins(%zero : f32) outs(%C : memref<?x8xf32>)
  %m = memref.dim %rows, %c0 : memref<?xindex>
  scf.for %r = %c0 to %m step %c1 {
    %i = memref.load %rows[%r] : memref<?xindex>
    %v = memref.load %val[%r] : memref<?xf32>
    memref.store %v, %C[%i, %c0] : memref<?x8xf32>
  }
  return
}
