// RUN: ditto-opt -p lower-fill %s | FileCheck %s

#id = affine_map<(i) -> (i)>

// What scales the output in place, and was not taken into a nest, is a kernel of its own, which reads no more than it must.
// CHECK-LABEL: func.func @scale(
// CHECK-NOT:     linalg.generic
// CHECK:         scf.forall
// CHECK:           scf.forall
// CHECK:             %[[NEW:.*]] = scf.if %{{.*}} -> (f32) {
// CHECK-NOT:           memref.load
// CHECK:             } else {
// CHECK:               memref.load %{{.*}}[%[[I:.*]]]
// CHECK:             memref.store %[[NEW]], %{{.*}}[%[[I]]]
// CHECK:         } {ditto.kernel = "_scale"
func.func @scale(%y: memref<?xf32>, %beta: f32) {
  %zero = arith.constant 0.0 : f32
  %unread = arith.cmpf oeq, %beta, %zero : f32
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%y : memref<?xf32>) {
  ^bb0(%o: f32):
    %s = arith.mulf %beta, %o : f32
    %r = arith.select %unread, %zero, %s : f32
    linalg.yield %r : f32
  }
  return
}
