// A message of a pass names the file, also where ditto-opt read it.
// RUN: not ditto-opt -p 'linalg-generalize-named-ops,pre-sparsification-rewrite,sparse-reinterpret-map,sparsification{parallelization-strategy=none},canonicalize,cse,prepare-nest' %s 2>&1 | FileCheck %s

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: tensor<?xf32>, %m: index) -> tensor<?xf32> {
  // CHECK: ditto-opt: unsupported: prepare-nest: {{.*}}places.mlir:[[#@LINE+1]]:8: the output starts from neither
  %y = tensor.empty(%m) : tensor<?xf32>
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
