// RUN: ditto-opt -p 'uniform-values,canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'uniform-values,slice-rows,rows-to-threads,map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNEL

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[VALUE:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.one_value.value", ditto.recipe = "one-value{level=1}"})
// CHECK-NOT:     sparse_tensor.values
// CHECK:         scf.for
// CHECK:           scf.for
// CHECK:             %[[V:.*]] = memref.load %[[VALUE]][%c0]
// CHECK-NEXT:        %[[B:.*]] = memref.load
// CHECK-NEXT:        arith.mulf %[[V]], %[[B]]

// A layout after it packs no values.
// KERNEL:      gpu.func @spmv(
// KERNEL-NOT:    "A.sliced_rows.values"
// KERNEL-SAME:   ditto.name = "A.one_value.value"
// KERNEL-SAME:   ditto.name = "A.sliced_rows.coordinates"
// KERNEL-NOT:    "A.sliced_rows.values"
// KERNEL-SAME:   ditto.grid
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
