// RUN: ditto-opt -p 'partition{by=column limit=9},rows-to-threads,map-blocks,next-part' %s | FileCheck %s
// RUN: ditto-opt -p 'partition{by=column limit=9},bin-rows,rows-to-threads,map-blocks,next-part,bin-rows,rows-to-threads,map-blocks,outline-kernels' %s | FileCheck %s --check-prefix=KERNELS

// The first part is a kernel with a number in its name; the next is the nest that passes work on now.
// CHECK-LABEL: func.func @spmv(
// CHECK:         scf.forall
// CHECK:         } {ditto.kernel = "_part0", mapping = [#gpu.block<linear_dim_0>]}
// CHECK:         scf.for
// CHECK-NOT:     ditto.waiting

// What a pass made beside a part has the number too, so that names differ; kernels run in this order.
// KERNELS: gpu.func @spmv_part0(
// KERNELS: gpu.func @spmv_part0_long(
// KERNELS: gpu.func @spmv(
// KERNELS: gpu.func @spmv_long(
#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
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
