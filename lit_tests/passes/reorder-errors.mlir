// RUN: not ditto-opt -p 'reorder{rows=none columns=degree}' --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'reorder{rows=none}' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not ditto-opt -p 'reorder{rows=length}' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'reorder,reorder' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'slice-rows,reorder' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=SLICES

// NOTHING: ditto-opt: bad-plan: reorder: rows=none columns=none changes nothing
// VALUE:   ditto-opt: bad-plan: reorder: rows=length is not one of ('none', 'degree', 'rcm', 'cluster')
// TWICE:   ditto-opt: not-applicable: reorder: does not go with rows or columns in another order
// SLICES:  ditto-opt: not-applicable: reorder: does not go with rows stored in slices

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Orders of it go.
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

// -----

#ROWS0 = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: reorder: needs dense rows over compressed entries
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#ROWS1 = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// The number of a column is more than a place to read: in another order it would be another one.
// CHECK: ditto-opt: not-applicable: reorder: the column of an entry is more than the first index of a dense operand
func.func @itself(%A: tensor<?x?xf32, #ROWS1> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS1>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS1> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS1> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS1> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%j] : memref<?xf32>
      %c = arith.index_cast %j : index to i32
      %d = arith.sitofp %c : i32 to f32
      %t = arith.mulf %d, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#ROWS2 = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Only the order of rows matters to it.
// CHECK: ditto-opt: not-applicable: reorder: nothing is gathered by columns
func.func @sums(%A: tensor<?x?xf32, #ROWS2> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS2>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS2> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS2> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS2> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      %t = arith.mulf %v, %v : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#ROWS3 = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// How much is to be copied is not known.
// CHECK: ditto-opt: not-applicable: reorder: the number of columns is not known; give its size (--size K=…)
func.func @wide(%A: tensor<?x?xf32, #ROWS3> {ditto.name = "A"}, %x: memref<?x?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS3>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS3> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS3> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS3> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%j, %c0] : memref<?x?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
