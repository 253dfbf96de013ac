// RUN: not ditto-opt -p keep-gathered --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'keep-gathered{level=2}' %s 2>&1 | FileCheck %s --check-prefix=OPTION

// OPTION: ditto-opt: bad-plan: keep-gathered: no option 'level'; it has none

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: keep-gathered: the entries read no dense operand, which a cache could keep
func.func @row_sums(%A: tensor<?x?xf32, #CSR>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %n = arith.addf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
