// RUN: ditto-opt -p 'linalg-generalize-named-ops,pre-sparsification-rewrite,sparse-reinterpret-map,sparsification{parallelization-strategy=none},canonicalize,cse,prepare-nest' %s | FileCheck %s
// RUN: ditto-opt -p 'linalg-generalize-named-ops,pre-sparsification-rewrite,sparse-reinterpret-map,sparsification{parallelization-strategy=none},canonicalize,cse,prepare-nest,canonicalize,cse' %s | FileCheck %s --check-prefix=CLEAN

#CSR = #sparse_tensor.encoding<{map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 32}>
#DCSR = #sparse_tensor.encoding<{map = (d0, d1) -> (d0 : compressed, d1 : compressed), posWidth = 32, crdWidth = 32}>
#CSC = #sparse_tensor.encoding<{map = (d0, d1) -> (d1 : dense, d0 : compressed), posWidth = 32, crdWidth = 32}>

// Dense operands become buffers that keep their attributes, and the output is updated in place.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[A:.*]]: tensor<?x?xf32, #{{.*}}> {ditto.name = "A"}, %[[X:.*]]: memref<?xf32> {ditto.name = "x"}, %[[Y:.*]]: memref<?xf32>) {
// CHECK-NOT:     tensor.extract
// CHECK-NOT:     bufferization.
// CHECK:         scf.for %[[I:.*]] =
// CHECK-NEXT:      %[[Y0:.*]] = memref.load %[[Y]][%[[I]]]
// CHECK:           %[[S:.*]] = scf.for %{{.*}} iter_args(%{{.*}} = %[[Y0]]) -> (f32) {
// CHECK:             memref.load %[[X]][%{{.*}}] : memref<?xf32>
// CHECK:           }{{$}}
// CHECK-NEXT:      memref.store %[[S]], %[[Y]][%[[I]]]
// CHECK-NEXT:    }{{$}}
// CHECK-NEXT:    return{{$}}
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: tensor<?xf32> {ditto.name = "x"}, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// An output that starts from a constant becomes a last argument, which a linalg.fill initialises.
// CHECK-LABEL: func.func @spmm(
// CHECK-SAME:    %{{.*}}: tensor<?x?xf64, #{{.*}}>, %[[B:.*]]: memref<?x64xf64>, %[[C:.*]]: memref<?x64xf64> {ditto.name = "result"}) {
// CHECK-NOT:     tensor.empty
// CHECK-NOT:     linalg.generic
// CHECK:         linalg.fill ins(%cst : f64) outs(%[[C]] : memref<?x64xf64>)
// CHECK:         scf.for
// CHECK:           memref.load %[[C]][
// CHECK:           memref.load %[[B]][
// CHECK:           memref.store %{{.*}}, %[[C]][
// CHECK:         return{{$}}
func.func @spmm(%A: tensor<?x?xf64, #CSR>, %B: tensor<?x64xf64>) -> tensor<?x64xf64> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f64
  %m = tensor.dim %A, %c0 : tensor<?x?xf64, #CSR>
  %empty = tensor.empty(%m) : tensor<?x64xf64>
  %init = linalg.fill ins(%zero : f64) outs(%empty : tensor<?x64xf64>) -> tensor<?x64xf64>
  %C = linalg.matmul ins(%A, %B : tensor<?x?xf64, #CSR>, tensor<?x64xf64>) outs(%init : tensor<?x64xf64>) -> tensor<?x64xf64>
  return %C : tensor<?x64xf64>
}

// The number of columns is that of a buffer.
// CHECK-LABEL: func.func @spmm_dynamic(
// CHECK-SAME:    %{{.*}}, %[[B:.*]]: memref<?x?xf32>, %[[C:.*]]: memref<?x?xf32>) {
// CHECK:         %[[K:.*]] = memref.dim %[[B]], %c1 : memref<?x?xf32>
// CHECK:         scf.for %{{.*}} = %c0 to %[[K]] step %c1 {
func.func @spmm_dynamic(%A: tensor<?x?xf32, #CSR>, %B: tensor<?x?xf32>, %C: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xf32, #CSR>, tensor<?x?xf32>) outs(%C : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// DCSR's rows are counted by their coordinates: nothing reads positions of the first level.
// CLEAN-LABEL: func.func @dcsr(
// CLEAN-NOT:     sparse_tensor.positions %{{.*}} {level = 0
// CLEAN:         %[[ROWS:.*]] = sparse_tensor.coordinates %{{.*}} {level = 0 : index}
// CLEAN-NOT:     sparse_tensor.positions %{{.*}} {level = 0
// CLEAN:         %[[COUNT:.*]] = memref.dim %[[ROWS]], %c0
// CLEAN:         scf.for %{{.*}} = %c0 to %[[COUNT]] step %c1 {
func.func @dcsr(%A: tensor<?x?xf32, #DCSR>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #DCSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// CSC goes through sparse_tensor.reinterpret_map; each column's terms are scattered.
// CHECK-LABEL: func.func @csc(
// CHECK-SAME:    %[[A:.*]]: tensor<?x?xf32, #{{.*}}>, %[[X:.*]]: memref<?xf32>, %[[Y:.*]]: memref<?xf32>) {
// CHECK:         %[[T:.*]] = sparse_tensor.reinterpret_map %[[A]]
// CHECK:         sparse_tensor.positions %[[T]]
// CHECK:         scf.for %[[J:.*]] =
// CHECK-NEXT:      memref.load %[[X]][%[[J]]]
// CHECK:           scf.for
// CHECK:             %[[OLD:.*]] = memref.load %[[Y]][%[[I:.*]]]
// CHECK:             memref.store %{{.*}}, %[[Y]][%[[I]]]
func.func @csc(%A: tensor<?x?xf32, #CSC>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSC>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// sparsification's note of where a loop comes from goes.
// CHECK-NOT: Emitted from
