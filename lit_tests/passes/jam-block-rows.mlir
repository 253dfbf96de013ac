// The rows of a block meet in one walk over the blocks; what does not depend on the row is loaded once.
//
// RUN: ditto-opt -p 'jam-block-rows,canonicalize,cse' %s | FileCheck %s

#BSR = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 2 : dense, j floordiv 3 : compressed, i mod 2 : dense, j mod 3 : dense), posWidth = 32, crdWidth = 32}>
#BSR4 = #sparse_tensor.encoding<{map = (i, j, ii, jj) -> (i : dense, j : compressed, ii : dense, jj : dense), posWidth = 32, crdWidth = 32}>

// CHECK-LABEL: func.func @spmv
// CHECK:         scf.for %[[I:.*]] = %c0
// CHECK-NOT:       scf.for %{{.*}} = %c0 to %c2
// CHECK:           %[[S:.*]]:2 = scf.for %[[P:.*]] = %{{.*}} to %{{.*}} step %c1 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) -> (f32, f32)
// CHECK:             memref.load %{{.*}}[%[[P]]] : memref<?xi32>
// CHECK-NOT:         memref.load %{{.*}}[%[[P]]] : memref<?xi32>
// CHECK:             %{{.*}}:2 = scf.for %{{.*}} = %c0 to %c3
// CHECK:               %[[X:.*]] = memref.load %{{.*}} : memref<?xf32>
// CHECK:               scf.yield
// CHECK:           memref.store %[[S]]#0
// CHECK:           memref.store %[[S]]#1
// CHECK-NOT:       memref.store
func.func @spmv(%A: tensor<?x?xf32, #BSR> {ditto.name = "A"}, %x: memref<?xf32> {ditto.name = "x"}, %y: memref<?xf32> {ditto.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %B = sparse_tensor.reinterpret_map %A : tensor<?x?xf32, #BSR> to tensor<?x?x2x3xf32, #BSR4>
  %val = sparse_tensor.values %B : tensor<?x?x2x3xf32, #BSR4> to memref<?xf32>
  %m = sparse_tensor.lvl %B, %c0 : tensor<?x?x2x3xf32, #BSR4>
  %pos = sparse_tensor.positions %B {level = 1 : index} : tensor<?x?x2x3xf32, #BSR4> to memref<?xi32>
  %crd = sparse_tensor.coordinates %B {level = 1 : index} : tensor<?x?x2x3xf32, #BSR4> to memref<?xi32>
  scf.for %i = %c0 to %m step %c1 {
    %lo32 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %lo32 : i32 to index
    %next = arith.addi %i, %c1 : index
    %hi32 = memref.load %pos[%next] : memref<?xi32>
    %hi = arith.index_castui %hi32 : i32 to index
    %first = arith.muli %i, %c2 : index
    scf.for %r = %c0 to %c2 step %c1 {
      %row = arith.addi %first, %r : index
      %old = memref.load %y[%row] : memref<?xf32>
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %old) -> (f32) {
        %j32 = memref.load %crd[%p] : memref<?xi32>
        %j = arith.index_castui %j32 : i32 to index
        %j3 = arith.muli %j, %c3 : index
        %p2 = arith.muli %p, %c2 : index
        %pr = arith.addi %p2, %r : index
        %pr3 = arith.muli %pr, %c3 : index
        %t = scf.for %q = %c0 to %c3 step %c1 iter_args(%b = %a) -> (f32) {
          %at = arith.addi %pr3, %q : index
          %v = memref.load %val[%at] : memref<?xf32>
          %column = arith.addi %j3, %q : index
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
