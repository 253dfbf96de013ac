// RUN: ditto-opt -p 'accumulate-registers,canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'accumulate-registers,accumulate-registers,canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'accumulate-registers,segment-rows{length=16},canonicalize,cse' %s | FileCheck %s --check-prefix=CUT

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>
#id = affine_map<(i) -> (i)>

// The factor of the terms multiplies the sum; the scaled old value is added after it, and read where its factor is not 0.
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME:    %[[Y:[a-z0-9]*]]: memref<?xf32>, %[[ALPHA:[a-z0-9]*]]: f32, %[[BETA:[a-z0-9]*]]: f32)
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NOT:     linalg.generic
// CHECK:         %[[UNREAD:.*]] = arith.cmpf oeq, %[[BETA]], %[[ZERO]]
// CHECK:         scf.for
// CHECK-NOT:       %[[Y]]
// CHECK:           %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[A:.*]] = %[[ZERO]])
// CHECK-NOT:         %[[ALPHA]]
// CHECK:             arith.addf %[[A]], %{{.*}}
// CHECK:           %[[TIMES:.*]] = arith.mulf %[[SUM]], %[[ALPHA]]
// CHECK:           %[[START:.*]] = scf.if %[[UNREAD]] -> (f32) {
// CHECK-NEXT:        scf.yield %[[ZERO]]
// CHECK-NEXT:      } else {
// CHECK-NEXT:        %[[OLD:.*]] = memref.load %[[Y]]
// CHECK-NEXT:        %[[SCALED:.*]] = arith.mulf %[[BETA]], %[[OLD]]
// CHECK-NEXT:        scf.yield %[[SCALED]]
// CHECK:           %[[ALL:.*]] = arith.addf %[[START]], %[[TIMES]]
// CHECK-NEXT:      memref.store %[[ALL]], %[[Y]]

// Rows that are cut are scaled first; their pieces add their multiple of the sum.
// CUT-LABEL: func.func @scaled(
// CUT-SAME:    %[[Y:[a-z0-9]*]]: memref<?xf32>, %[[ALPHA:[a-z0-9]*]]: f32, %[[BETA:[a-z0-9]*]]: f32,
// CUT:         scf.forall
// CUT:             %[[START:.*]] = scf.if %{{.*}} -> (f32) {
// CUT:               arith.mulf %[[BETA]], %{{.*}}
// CUT:             memref.store %[[START]], %[[Y]]
// CUT:         } {ditto.kernel = "_init"
// CUT:         scf.for
// CUT:           %[[SUM:.*]] = scf.for
// CUT:           scf.if
// CUT-NEXT:        %[[PART:.*]] = arith.mulf %[[SUM]], %[[ALPHA]]
// CUT-NEXT:        memref.atomic_rmw addf %[[PART]], %[[Y]]
// CUT-NEXT:      } else {
// CUT:             arith.mulf %[[BETA]]
// CUT:             memref.store %{{.*}}, %[[Y]]
func.func @scaled(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>, %alpha: f32, %beta: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %unread = arith.cmpf oeq, %beta, %zero : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%y : memref<?xf32>) {
  ^bb0(%o: f32):
    %s = arith.mulf %beta, %o : f32
    %r = arith.select %unread, %zero, %s : f32
    linalg.yield %r : f32
  }
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
      %u = arith.mulf %t, %alpha : f32
      %n = arith.addf %a, %u : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
