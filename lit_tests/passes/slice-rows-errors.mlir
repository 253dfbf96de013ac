// RUN: not ditto-opt -p slice-rows --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'slice-rows{height=20}' %s 2>&1 | FileCheck %s --check-prefix=HEIGHT
// RUN: not ditto-opt -p 'slice-rows{window=32}' %s 2>&1 | FileCheck %s --check-prefix=WINDOW
// RUN: not ditto-opt -p 'slice-rows{offsets=8}' %s 2>&1 | FileCheck %s --check-prefix=OFFSETS
// RUN: not ditto-opt -p 'slice-rows{heights=32}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'slice-row' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'slice-rows,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'segment-rows,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=SEGMENTS
// RUN: not ditto-opt -p 'bin-rows,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=BINS
// RUN: not ditto-opt -p 'unroll,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'vectorize-entries,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=VECTORS
// RUN: not ditto-opt -p 'rows-to-threads,slice-rows' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// HEIGHT:   ditto-opt: bad-plan: slice-rows: height=20 is not one of (2, 4, 8, 16, 32, 64, 128)
// WINDOW:   ditto-opt: bad-plan: slice-rows: window=32 is not one of (1, 128, 1024, 8192, 65536, 1073741824)
// OFFSETS:  ditto-opt: bad-plan: slice-rows: offsets=8 is not one of (16, 32)
// OPTION:   ditto-opt: bad-plan: slice-rows: no option 'heights'; did you mean 'height'?; it has height, window, offsets
// TYPO:     ditto-opt: bad-plan: no pass is named 'slice-row'; did you mean 'slice-rows'?
// TWICE:    ditto-opt: not-applicable: slice-rows: does not go with rows stored in slices
// SEGMENTS: ditto-opt: not-applicable: slice-rows: does not go with rows cut into segments
// BINS:     ditto-opt: not-applicable: slice-rows: does not go with long rows in a kernel of their own
// UNROLLED: ditto-opt: not-applicable: slice-rows: does not go with the innermost reduction unrolled
// VECTORS:  ditto-opt: not-applicable: slice-rows: does not go with stored entries loaded in vectors
// MAPPED:   ditto-opt: not-applicable: slice-rows: needs a parallel loop outside all others, not mapped yet

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// Its rows are sliced: once, and before anything else is decided about them.
func.func @sum(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
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

// -----

#ROWS = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// CHECK: ditto-opt: not-applicable: slice-rows: only sums can be cut
func.func @maximum(%A: tensor<?x?xf32, #ROWS> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
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

#ONLY = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// Nothing but values is read.
// CHECK: ditto-opt: not-applicable: slice-rows: no column is read, where a mark could say that a row has no entry
func.func @values(%A: tensor<?x?xf32, #ONLY> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ONLY>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ONLY> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ONLY> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %n = arith.addf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#USED = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// An entry's number in the arrays means nothing in slices.
// CHECK: ditto-opt: not-applicable: slice-rows: entries are read by more than their coordinates and values
func.func @place(%A: tensor<?x?xf32, #USED> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #USED>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #USED> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #USED> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #USED> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%p] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// Nothing here is stored by rows.
// CHECK: ditto-opt: not-applicable: slice-rows: needs dense rows over compressed entries
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
