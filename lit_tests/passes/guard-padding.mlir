// A sum over blocks that is no number is computed again without what fills the blocks; sums over entries alone stay.
//
// RUN: ditto-opt -p 'guard-padding' %s | FileCheck %s

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>
#BSR = #sparse_tensor.encoding<{map = (i, j, ii, jj) -> (i : dense, j : compressed, ii : dense, jj : dense), posWidth = 32, crdWidth = 32}>

// CHECK-LABEL: func.func @blocks
// CHECK:         %[[FAST:.*]] = scf.for
// CHECK-NOT:       arith.bitcast
// CHECK:         %[[BAD:.*]] = arith.cmpf une, %[[FAST]], %[[FAST]] : f32
// CHECK:         %[[S:.*]] = scf.if %[[BAD]] -> (f32)
// CHECK:           %[[SLOW:.*]] = scf.for
// CHECK:             scf.for %{{.*}} iter_args(%[[A:.*]] = %{{.*}}) -> (f32)
// CHECK:               %[[V:.*]] = memref.load
// CHECK:               %[[N:.*]] = arith.addf %[[A]],
// CHECK:               %[[BITS:.*]] = arith.bitcast %[[V]] : f32 to i32
// CHECK:               %[[ENTRY:.*]] = arith.cmpi ne, %[[BITS]], %c-2147483648_i32
// CHECK:               %[[NEXT:.*]] = arith.select %[[ENTRY]], %[[N]], %[[A]] : f32
// CHECK:               scf.yield %[[NEXT]]
// CHECK:           scf.yield %[[SLOW]]
// CHECK:           scf.yield %[[FAST]]
// CHECK:         memref.store %[[S]]
func.func @blocks(%A: tensor<?x?x2x2xf32, #BSR> {ditto.name = "A"}, %x: memref<?xf32> {ditto.name = "x"}, %y: memref<?xf32> {ditto.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %val = sparse_tensor.values %A : tensor<?x?x2x2xf32, #BSR> to memref<?xf32>
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?x2x2xf32, #BSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?x2x2xf32, #BSR> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?x2x2xf32, #BSR> to memref<?xi32>
  scf.for %i = %c0 to %m step %c1 {
    %lo32 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %lo32 : i32 to index
    %next = arith.addi %i, %c1 : index
    %hi32 = memref.load %pos[%next] : memref<?xi32>
    %hi = arith.index_castui %hi32 : i32 to index
    %first = arith.muli %i, %c2 : index
    scf.for %r = %c0 to %c2 step %c1 {
      %row = arith.addi %first, %r : index
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j32 = memref.load %crd[%p] : memref<?xi32>
        %j = arith.index_castui %j32 : i32 to index
        %j2 = arith.muli %j, %c2 : index
        %p2 = arith.muli %p, %c2 : index
        %pr = arith.addi %p2, %r : index
        %pr2 = arith.muli %pr, %c2 : index
        %t = scf.for %q = %c0 to %c2 step %c1 iter_args(%b = %a) -> (f32) {
          %at = arith.addi %pr2, %q : index
          %v = memref.load %val[%at] : memref<?xf32>
          %column = arith.addi %j2, %q : index
          %w = memref.load %x[%column] : memref<?xf32>
          %vw = arith.mulf %v, %w : f32
          %n = arith.addf %b, %vw : f32
          scf.yield %n : f32
        }
        scf.yield %t : f32
      }
      memref.store %s, %y[%row] : memref<?xf32>
    }
  }
  return
}

// CHECK-LABEL: func.func @entries
// CHECK-NOT:     arith.cmpf
// CHECK-NOT:     scf.if
func.func @entries(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32> {ditto.name = "x"}, %y: memref<?xf32> {ditto.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  scf.for %i = %c0 to %m step %c1 {
    %lo32 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %lo32 : i32 to index
    %next = arith.addi %i, %c1 : index
    %hi32 = memref.load %pos[%next] : memref<?xi32>
    %hi = arith.index_castui %hi32 : i32 to index
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
      %j32 = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %j32 : i32 to index
      %v = memref.load %val[%p] : memref<?xf32>
      %w = memref.load %x[%j] : memref<?xf32>
      %vw = arith.mulf %v, %w : f32
      %n = arith.addf %a, %vw : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
