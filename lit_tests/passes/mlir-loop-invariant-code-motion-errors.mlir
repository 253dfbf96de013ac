// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=8},mlir-loop-invariant-code-motion,coarsen-rows' %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'mlir-loop-invariant-code-motion{depth=1}' %s 2>&1 | FileCheck %s --check-prefix=OPTION

// OPTION: ditto-opt: bad-plan: mlir-loop-invariant-code-motion: no option 'depth'; it has none

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// The constant that the loop of lanes holds leaves it, and stands between the rows and their lanes.
// CHECK: ditto-opt: not-applicable: coarsen-rows: there are ops between the rows and their lanes
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %lo = memref.load %pos[%i] : memref<?xindex>
    %next = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%next] : memref<?xindex>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
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
