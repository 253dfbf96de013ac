// RUN: not ditto-opt -p segment-rows --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'segment-rows{length=100}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'segment-rows{lenght=64}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'segment-row' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'segment-rows,segment-rows' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'unroll,segment-rows' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'bin-rows,segment-rows' %s 2>&1 | FileCheck %s --check-prefix=BINS

// VALUE:    ditto-opt: bad-plan: segment-rows: length=100 is not one of (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
// OPTION:   ditto-opt: bad-plan: segment-rows: no option 'lenght'; did you mean 'length'?; it has length
// TYPO:     ditto-opt: bad-plan: no pass is named 'segment-row'; did you mean 'segment-rows'?
// TWICE:    ditto-opt: not-applicable: segment-rows: does not go with rows cut into segments
// UNROLLED: ditto-opt: not-applicable: segment-rows: does not go with the innermost reduction unrolled
// BINS:     ditto-opt: not-applicable: segment-rows: does not go with long rows in a kernel of their own

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Segments of it go; they go once, before the walk is unrolled, and not where long rows went elsewhere.
func.func @sum(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
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

// -----

#ROWS = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: segment-rows: only sums can be cut
func.func @maximum(%A: tensor<?x?xf32, #ROWS> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS> to memref<?xf32>
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
      %n = arith.maximumf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// Nothing here is stored by rows.
// CHECK: ditto-opt: not-applicable: segment-rows: needs dense rows over compressed entries
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
