// RUN: not ditto-opt -p 'next-part' %s 2>&1 | FileCheck %s --check-prefix=BLOCKS
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,next-part' %s 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not ditto-opt -p 'partition,rows-to-threads,map-blocks,outline-kernels' %s 2>&1 | FileCheck %s --check-prefix=LEFT
// RUN: not ditto-opt -p 'partition,rows-to-threads,map-blocks,next-part,outline-kernels' %s 2>&1 | FileCheck %s --check-prefix=UNMAPPED

// BLOCKS:   ditto-opt: not-applicable: next-part: needs the grid split into blocks of threads
// NONE:     ditto-opt: not-applicable: next-part: needs the matrix in parts, of which some wait
// LEFT:     ditto-opt: not-applicable: outline-kernels: a part of the matrix waits for its schedule; add next-part and what it needs
// UNMAPPED: ditto-opt: not-applicable: outline-kernels: the nest is not mapped to blocks of threads; add map-blocks
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
