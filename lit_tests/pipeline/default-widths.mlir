// An encoding without widths stores indices of MLIR's index type, at every level.
// RUN: ditto-opt -p 'linalg-generalize-named-ops,pre-sparsification-rewrite,sparse-reinterpret-map,sparsification{parallelization-strategy=none},canonicalize,cse,prepare-nest,canonicalize' %s | FileCheck %s
// RUN: sparseditto compile %s -o %t && FileCheck %s --check-prefix=PTX < %t/kernel.ptx

// CHECK: %[[ROWS:.*]] = sparse_tensor.coordinates %{{.*}} {level = 0 : index} : {{.*}} to memref<?xindex>
// CHECK: %[[COUNT:.*]] = memref.dim %[[ROWS]], %c0
// CHECK: scf.for %{{.*}} = %c0 to %[[COUNT]] step %c1 {

// PTX: .visible .entry spmv(
#DCSR = #sparse_tensor.encoding<{map = (i, j) -> (i : compressed, j : compressed)}>
func.func @spmv(%A: tensor<?x?xf32, #DCSR>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #DCSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
