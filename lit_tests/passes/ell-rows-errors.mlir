// RUN: not ditto-opt -p ell-rows --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'ell-rows{offsets=8}' %s 2>&1 | FileCheck %s --check-prefix=OFFSETS
// RUN: not ditto-opt -p 'slice-rows,ell-rows' %s 2>&1 | FileCheck %s --check-prefix=SLICES
// RUN: not ditto-opt -p 'bin-rows,ell-rows' %s 2>&1 | FileCheck %s --check-prefix=BINS
// RUN: not ditto-opt -p 'nonempty-rows,ell-rows' %s 2>&1 | FileCheck %s --check-prefix=LISTED

// OFFSETS:  ditto-opt: bad-plan: ell-rows: offsets=8 is not one of (16, 32)
// SLICES:   ditto-opt: not-applicable: ell-rows: does not go with rows stored in slices, diagonals or at one width
// BINS:     ditto-opt: not-applicable: ell-rows: does not go with long rows in a kernel of their own
// LISTED:   ditto-opt: not-applicable: ell-rows: does not go with a list of the rows that have entries

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

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

// -----

#MAXIMUM = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// Rows of one width hold sums.
// CHECK: ditto-opt: not-applicable: ell-rows: only sums can be cut
func.func @maximum(%A: tensor<?x?xf32, #MAXIMUM> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #MAXIMUM>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #MAXIMUM> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #MAXIMUM> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #MAXIMUM> to memref<?xf32>
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
      %n = arith.maximumf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#VALUES = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// A mark stands in a column.
// CHECK: ditto-opt: not-applicable: ell-rows: no column is read, where a mark could say that a row has no entry
func.func @values(%A: tensor<?x?xf32, #VALUES> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #VALUES>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #VALUES> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #VALUES> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %p0 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %p0 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %p1 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %p1 : i32 to index
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %n = arith.addf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#PLACE = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// An entry's number in the arrays means nothing here.
// CHECK: ditto-opt: not-applicable: ell-rows: entries are read by more than their coordinates and values
func.func @place(%A: tensor<?x?xf32, #PLACE> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #PLACE>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #PLACE> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #PLACE> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #PLACE> to memref<?xf32>
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
      %b = memref.load %x[%p] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
