// RUN: not ditto-opt -p pack-blocks --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'pack-blocks{places=6}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'rows-to-threads,pack-blocks' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// OPTION: ditto-opt: bad-plan: pack-blocks: no option 'places'
// MAPPED: ditto-opt: not-applicable: pack-blocks: needs a parallel loop outside all others, not mapped yet

#LARGE = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 12 : dense, j floordiv 3 : compressed, i mod 12 : dense, j mod 3 : dense)}>

// A bit a place, in one word.
// CHECK: ditto-opt: not-applicable: pack-blocks: blocks have 36 places, and there are bits for 32
func.func @spmv(%A: tensor<?x?xf32, #LARGE> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 12 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #LARGE>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #LARGE> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #LARGE> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #LARGE> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %r = %c0 to %c2 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %p2 = arith.muli %p, %c2 : index
        %pr = arith.addi %p2, %r : index
        %line = arith.muli %pr, %c3 : index
        %first = arith.muli %j, %c3 : index
        %t = scf.for %q = %c0 to %c3 step %c1 iter_args(%d = %a) -> (f32) {
          %at = arith.addi %line, %q : index
          %v = memref.load %val[%at] : memref<?xf32>
          %column = arith.addi %first, %q : index
          %b = memref.load %x[%column] : memref<?xf32>
          %product = arith.mulf %v, %b : f32
          %n = arith.addf %d, %product : f32
          scf.yield %n : f32
        }
        scf.yield %t : f32
      }
      %i2 = arith.muli %i, %c2 : index
      %row = arith.addi %i2, %r : index
      memref.store %s, %y[%row] : memref<?xf32>
    }
  }
  return
}

// -----

#ROWS = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// Rows of single entries have no places without one.
// CHECK: ditto-opt: not-applicable: pack-blocks: the matrix is not stored in blocks whose columns are summed
func.func @rows(%A: tensor<?x?xf32, #ROWS> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS> to memref<?xf32>
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
