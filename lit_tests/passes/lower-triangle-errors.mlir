// RUN: not ditto-opt -p lower-triangle --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'reorder,lower-triangle' %s 2>&1 | FileCheck %s --check-prefix=REORDERED
// RUN: not ditto-opt -p 'narrow-coordinates,lower-triangle' %s 2>&1 | FileCheck %s --check-prefix=NARROW
// RUN: not ditto-opt -p 'rows-to-threads,lower-triangle' %s 2>&1 | FileCheck %s --check-prefix=MAPPED
// RUN: not ditto-opt -p 'partition,lower-triangle' %s 2>&1 | FileCheck %s --check-prefix=PARTS
// RUN: not ditto-opt -p 'partition,rows-to-threads,map-blocks,next-part,lower-triangle' %s 2>&1 | FileCheck %s --check-prefix=PART

// REORDERED: ditto-opt: not-applicable: lower-triangle: does not go with rows or columns in another order
// NARROW:    ditto-opt: not-applicable: lower-triangle: does not go with coordinates stored as offsets from the first of their row
// MAPPED:    ditto-opt: not-applicable: lower-triangle: needs a parallel loop outside all others, not mapped yet
// PARTS:     ditto-opt: not-applicable: lower-triangle: does not go with the matrix in parts, of which some wait
// PART:      ditto-opt: not-applicable: lower-triangle: a part of a matrix, or its rows in another order, is not symmetric

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

// Atomics add.
// CHECK: ditto-opt: not-applicable: lower-triangle: only sums can be cut
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

// Without a column there is no mirror image.
// CHECK: ditto-opt: not-applicable: lower-triangle: no column is read, which would say where the mirror image of an entry is
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

// An entry's number in the arrays is another one in the triangle.
// CHECK: ditto-opt: not-applicable: lower-triangle: entries are read by more than their coordinates and values
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
// -----

#ROW = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// The mirror image of an entry belongs to another row.
// CHECK: ditto-opt: not-applicable: lower-triangle: what an entry adds depends on its row
func.func @row(%A: tensor<?x?xf32, #ROW> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROW>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROW> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROW> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROW> to memref<?xf32>
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
      %w = memref.load %x[%i] : memref<?xf32>
      %u = arith.mulf %v, %b : f32
      %t = arith.mulf %u, %w : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}


// -----

#WIDE = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// A sum in f64 is rounded once; each addition to the output would round.
// CHECK: ditto-opt: not-applicable: lower-triangle: sums are wider than the output, and each of its additions would be rounded
func.func @wide(%A: tensor<?x?xf32, #WIDE> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f64
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #WIDE>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #WIDE> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #WIDE> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #WIDE> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %p0 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %p0 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %p1 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %p1 : i32 to index
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f64) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%j] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %w = arith.extf %t : f32 to f64
      %n = arith.addf %a, %w : f64
      scf.yield %n : f64
    }
    %r = arith.truncf %s : f64 to f32
    memref.store %r, %y[%i] : memref<?xf32>
  }
  return
}


// -----

#ROOT = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// What is stored cannot be put together from additions.
// CHECK: ditto-opt: not-applicable: lower-triangle: what is stored is no multiple of the sum added to an initial value
func.func @root(%A: tensor<?x?xf32, #ROOT> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROOT>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROOT> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROOT> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROOT> to memref<?xf32>
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
    %r = math.sqrt %s : f32
    memref.store %r, %y[%i] : memref<?xf32>
  }
  return
}

