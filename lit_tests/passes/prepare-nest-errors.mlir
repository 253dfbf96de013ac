// RUN: not ditto-opt -p 'linalg-generalize-named-ops,pre-sparsification-rewrite,sparse-reinterpret-map,sparsification{parallelization-strategy=none},canonicalize,cse,prepare-nest' --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'prepare-nest{fill=true}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'prepare-nests' %s 2>&1 | FileCheck %s --check-prefix=TYPO

// OPTION: ditto-opt: bad-plan: prepare-nest: no option 'fill'; it has none
// TYPO:   ditto-opt: bad-plan: no pass is named 'prepare-nests'; did you mean 'prepare-nest'?

#CSR = #sparse_tensor.encoding<{map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 32}>

// CHECK: ditto-opt: unsupported: prepare-nest: {{.*}}:[[#@LINE+3]]:8: the output starts from neither an argument nor a linalg.fill of a constant
func.func @uninitialised(%A: tensor<?x?xf32, #CSR>, %x: tensor<?xf32>, %m: index) -> tensor<?xf32> {
  %c1 = arith.constant 1 : index
  %y = tensor.empty(%m) : tensor<?xf32>
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

// Only the agent's choice is missing: a dense product is left as it is by sparsification.
// CHECK: ditto-opt: not-applicable: prepare-nest: there is no sparsified nest
func.func @dense(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

// CHECK: ditto-opt: not-applicable: prepare-nest: there is no sparsified nest
func.func @nothing() {
  return
}
