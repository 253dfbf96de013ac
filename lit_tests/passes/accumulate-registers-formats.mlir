// What accumulate-registers makes of the nests that sparsification makes for other formats than CSR.
// RUN: ditto-opt -p 'linalg-generalize-named-ops,pre-sparsification-rewrite,sparse-reinterpret-map,sparsification{parallelization-strategy=none},canonicalize,cse,prepare-nest,accumulate-registers' %s | FileCheck %s

#BSR = #sparse_tensor.encoding<{map = (d0, d1) -> (d0 floordiv 2 : dense, d1 floordiv 4 : compressed, d0 mod 2 : dense, d1 mod 4 : dense), posWidth = 32, crdWidth = 32}>
#DCSR = #sparse_tensor.encoding<{map = (d0, d1) -> (d0 : compressed, d1 : compressed), posWidth = 32, crdWidth = 32}>
#CSC = #sparse_tensor.encoding<{map = (d0, d1) -> (d1 : dense, d0 : compressed), posWidth = 32, crdWidth = 32}>

// Rows of blocks, rows of a block and columns come before blocks and columns of a block: one sum goes through both reductions.
// CHECK-LABEL: func.func @bsr
// CHECK:         scf.for %[[BLOCK_ROW:.*]] = %c0 to
// CHECK:           scf.for %[[ROW:.*]] = %c0 to %c2 step %c1 {
// CHECK:             scf.for %[[K:.*]] = %c0 to %c8 step %c1 {
// CHECK:               %[[OLD:.*]] = memref.load %arg2[%[[I:.*]], %[[K]]]
// CHECK-NEXT:          %[[S:.*]] = scf.for %{{.*}} step %c1 iter_args(%[[A:.*]] = %[[OLD]]) -> (f64) {
// CHECK:                 %[[T:.*]] = scf.for %{{.*}} = %c0 to %c4 step %c1 iter_args(%{{.*}} = %[[A]]) -> (f64) {
// CHECK:                 scf.yield %[[T]]
// CHECK:               memref.store %[[S]], %arg2[%[[I]], %[[K]]]
func.func @bsr(%A: tensor<?x?xf64, #BSR>, %B: tensor<?x8xf64>, %C: tensor<?x8xf64>) -> tensor<?x8xf64> {
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xf64, #BSR>, tensor<?x8xf64>) outs(%C : tensor<?x8xf64>) -> tensor<?x8xf64>
  return %0 : tensor<?x8xf64>
}

// The rows are the stored ones: the output's index is a coordinate.
// CHECK-LABEL: func.func @dcsr
// CHECK:         scf.for %[[R:.*]] = %{{.*}} to %{{.*}} step %c1 {
// CHECK:           %[[CRD:.*]] = memref.load %{{.*}}[%[[R]]] : memref<?xi32>
// CHECK:           %[[WIDE:.*]] = arith.extui %[[CRD]]
// CHECK:           %[[I:.*]] = arith.index_cast %[[WIDE]]
// CHECK:           scf.for %[[K:.*]] = %c0 to %c8 step %c1 {
// CHECK:             memref.load %arg2[%[[I]], %[[K]]]
// CHECK:             scf.for
// CHECK:             memref.store %{{.*}}, %arg2[%[[I]], %[[K]]]
func.func @dcsr(%A: tensor<?x?xf64, #DCSR>, %B: tensor<?x8xf64>, %C: tensor<?x8xf64>) -> tensor<?x8xf64> {
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xf64, #DCSR>, tensor<?x8xf64>) outs(%C : tensor<?x8xf64>) -> tensor<?x8xf64>
  return %0 : tensor<?x8xf64>
}

// DCSR's loop does not reach the empty rows: the fill stays, and the sums start from what it wrote.
// CHECK-LABEL: func.func @dcsr_fill
// CHECK:         linalg.fill ins(%{{.*}}) outs(%[[Y:.*]] : memref<?xf32>)
// CHECK:         scf.for
// CHECK:           %[[OLD:.*]] = memref.load %[[Y]][%[[I:.*]]]
// CHECK:           scf.for %{{.*}} iter_args(%{{.*}} = %[[OLD]]) -> (f32) {
// CHECK:           memref.store %{{.*}}, %[[Y]][%[[I]]]
func.func @dcsr_fill(%A: tensor<?x?xf32, #DCSR>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf32, #DCSR>
  %empty = tensor.empty(%m) : tensor<?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #DCSR>, tensor<?xf32>) outs(%init : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// A transposed product walks a CSC matrix column by column, and its columns are the output's rows.
// CHECK-LABEL: func.func @csc
// CHECK:         scf.for %[[I:.*]] = %c0 to
// CHECK:           %[[S:.*]] = scf.for %{{.*}} iter_args
// CHECK:           memref.store %[[S]], %arg2[%[[I]]]
func.func @csc(%A: tensor<?x?xf32, #CSC>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.vecmat ins(%x, %A : tensor<?xf32>, tensor<?x?xf32, #CSC>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
