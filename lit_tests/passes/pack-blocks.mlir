// RUN: ditto-opt -p 'pack-blocks,canonicalize,cse' %s | FileCheck %s
// RUN: not ditto-opt -p 'pack-blocks,pack-blocks' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'pack-blocks,uniform-values' %s 2>&1 | FileCheck %s --check-prefix=UNIFORM

#BSR = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 2 : dense, j floordiv 3 : compressed, i mod 2 : dense, j mod 3 : dense)}>

// Of the values only the entries are stored; coordinates of blocks are the operand's own.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[BITS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.block_bitmaps.bitmaps", ditto.recipe = "block-bitmaps{level=1 places=6}"},
// CHECK-SAME:    %[[FIRST:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.block_bitmaps.first_entries", ditto.recipe = "block-bitmaps{{[^"]*}}"},
// CHECK-SAME:    %[[VAL:[a-z0-9]*]]: memref<?xf32> {ditto.name = "A.block_bitmaps.values", ditto.part = "values", ditto.recipe = "block-bitmaps{{[^"]*}}"})
// CHECK-NOT:     sparse_tensor.values

// A block's bits are loaded once for all of its columns.
// CHECK:           scf.for %[[P:.*]] = %{{.*}} iter_args(%{{.*}} = %cst)
// CHECK-NEXT:        %[[WORD:.*]] = memref.load %[[BITS]][%[[P]]]
// CHECK-NEXT:        %[[START:.*]] = memref.load %[[FIRST]][%[[P]]]
// CHECK:             scf.for %{{.*}} iter_args(%[[SUM:.*]] = %{{.*}})

// The bit of the place, and how many are set before it.
// CHECK:               %[[BEGIN:.*]] = arith.muli %[[P]], %c6
// CHECK-NEXT:          %[[PLACE:.*]] = arith.subi %{{.*}}, %[[BEGIN]]
// CHECK-NEXT:          %[[K:.*]] = arith.index_cast %[[PLACE]] : index to i32
// CHECK-NEXT:          %[[MASK:.*]] = arith.shli %c1_i32, %[[K]]
// CHECK-NEXT:          %[[BIT:.*]] = arith.andi %[[WORD]], %[[MASK]]
// CHECK-NEXT:          %[[IN:.*]] = arith.cmpi ne, %[[BIT]], %c0_i32
// CHECK-NEXT:          %[[BELOW:.*]] = arith.subi %[[MASK]], %c1_i32
// CHECK-NEXT:          arith.andi %[[WORD]], %[[BELOW]]
// CHECK:               %[[START2:.*]] = arith.index_castui %[[START]]
// CHECK-NEXT:          %[[BEFORE:.*]] = arith.index_castui
// CHECK-NEXT:          %[[NUMBER:.*]] = arith.addi %[[START2]], %[[BEFORE]]
// CHECK-NEXT:          %[[V:.*]] = memref.load %[[VAL]][%[[NUMBER]]]
// CHECK:               %[[T:.*]] = arith.mulf %[[V]]
// CHECK-NEXT:          %[[N:.*]] = arith.addf %[[SUM]], %[[T]]
// CHECK-NEXT:          %[[TAKEN:.*]] = arith.select %[[IN]], %[[N]], %[[SUM]]
// CHECK-NEXT:          scf.yield %[[TAKEN]]

// What a later pass says of it.
// TWICE:   ditto-opt: not-applicable: pack-blocks: does not go with blocks that store their entries only
// UNIFORM: ditto-opt: not-applicable: uniform-values: does not go with blocks that store their entries only
func.func @spmv(%A: tensor<?x?xf32, #BSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #BSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #BSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #BSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #BSR> to memref<?xf32>
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
