// RUN: ditto-opt -p lower-collectives,canonicalize,cse %s | FileCheck %s

// As many steps of a butterfly as the shift says: offsets 1, 2, 4, ... below the size of the group.  All lanes know the shift.
// CHECK-LABEL: func.func @f32(
// CHECK-SAME:    %[[P:.*]]: f32, %[[SHIFT:.*]]: index)
// CHECK-NOT:     ditto.
// CHECK:         %[[S:.*]] = scf.for %[[I:.*]] = %c0 to %[[SHIFT]] step %c1 iter_args(%[[A:.*]] = %[[P]]) -> (f32) {
// CHECK-NEXT:      %[[O:.*]] = arith.shli %c1, %[[I]] : index
// CHECK-NEXT:      %[[OFFSET:.*]] = arith.index_cast %[[O]] : index to i32
// CHECK-NEXT:      %[[Q:.*]], %{{.*}} = gpu.shuffle xor %[[A]], %[[OFFSET]], %c32_i32 : f32
// CHECK-NEXT:      %[[N:.*]] = arith.addf %[[A]], %[[Q]] : f32
// CHECK-NEXT:      scf.yield %[[N]]
// CHECK-NEXT:    }
// CHECK-NEXT:    return %[[S]]
func.func @f32(%p: f32, %shift: index) -> f32 {
  %s = "ditto.group_reduce"(%p, %shift) {kind = "arith.addf"} : (f32, index) -> f32
  return %s : f32
}

// A group of one lane has its sum already; one of four takes two steps.
// CHECK-LABEL: func.func @known(
// CHECK-NOT:     gpu.shuffle
// CHECK:         scf.for %{{.*}} = %c0 to %c2 step %c1 iter_args(%{{.*}} = %arg0)
// CHECK:           arith.maximumf
// CHECK:         return %arg0,
func.func @known(%p: f32) -> (f32, f32) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %s = "ditto.group_reduce"(%p, %c0) {kind = "arith.addf"} : (f32, index) -> f32
  %t = "ditto.group_reduce"(%p, %c2) {kind = "arith.maximumf"} : (f32, index) -> f32
  return %s, %t : f32, f32
}

// 64-bit values cross in two halves, vectors element by element.
// CHECK-LABEL:   func.func @f64
// CHECK-COUNT-2:   gpu.shuffle xor %{{.*}} : i32
// CHECK-NOT:       gpu.shuffle
// CHECK:           arith.addf %{{.*}} : f64
func.func @f64(%p: f64, %shift: index) -> f64 {
  %s = "ditto.group_reduce"(%p, %shift) {kind = "arith.addf"} : (f64, index) -> f64
  return %s : f64
}

// A shared buffer is a global of the module, one for each op; a fence orders memory for the whole GPU.
// CHECK-LABEL: gpu.module @blocks
// CHECK-DAG:     memref.global "private" @[[A:.*]] : memref<128xf32, 3> = uninitialized
// CHECK-DAG:     memref.global "private" @[[B:.*]] : memref<1xi32, 3> = uninitialized
// CHECK:         gpu.func @f(
// CHECK:           %[[X:.*]] = memref.get_global @[[A]] : memref<128xf32, 3>
// CHECK-NEXT:      %[[Y:.*]] = memref.get_global @[[B]] : memref<1xi32, 3>
// CHECK-NEXT:      memref.store %{{.*}}, %[[X]]
// CHECK-NEXT:      llvm.fence syncscope("device") acq_rel
// CHECK-NEXT:      memref.store %{{.*}}, %[[Y]]
gpu.module @blocks {
  gpu.func @f(%p: f32, %n: i32, %i: index) kernel {
    %x = "ditto.shared_buffer"() : () -> memref<128xf32, 3>
    %y = "ditto.shared_buffer"() : () -> memref<1xi32, 3>
    memref.store %p, %x[%i] : memref<128xf32, 3>
    "ditto.fence"() : () -> ()
    memref.store %n, %y[%i] : memref<1xi32, 3>
    gpu.return
  }
}
