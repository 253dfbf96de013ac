// RUN: ditto-opt -p lower-collectives,canonicalize,cse %s | FileCheck %s

// A kernel may have the name that the shared buffer would take.
// CHECK-LABEL: gpu.module @kernels
// CHECK:         memref.global "private" @[[BUFFER:.*]] : memref<4xf32, 3> = uninitialized
// CHECK:         gpu.func @shared0
// CHECK:           memref.get_global @[[BUFFER]]
gpu.module @kernels {
  gpu.func @shared0(%p: f32, %out: memref<1xf32>) kernel {
    %c0 = arith.constant 0 : index
    %s = "ditto.block_reduce"(%p) {kind = "arith.addf", threads = 128 : i32} : (f32) -> f32
    memref.store %s, %out[%c0] : memref<1xf32>
    gpu.return
  }
}
