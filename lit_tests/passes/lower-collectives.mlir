// RUN: ditto-opt -p lower-collectives,canonicalize,cse %s | FileCheck %s

// A butterfly over 4 lanes: every lane gets the sum.  The shuffles name the whole warp; the offsets stay inside the group.
// CHECK-LABEL: func.func @f32(
// CHECK-SAME:    %[[P:.*]]: f32)
// CHECK-NOT:     ditto.
// CHECK:         %[[A:.*]], %{{.*}} = gpu.shuffle xor %[[P]], %c2_i32, %c32_i32 : f32
// CHECK-NEXT:    %[[B:.*]] = arith.addf %[[P]], %[[A]] : f32
// CHECK-NEXT:    %[[C:.*]], %{{.*}} = gpu.shuffle xor %[[B]], %c1_i32, %c32_i32 : f32
// CHECK-NEXT:    %[[S:.*]] = arith.addf %[[B]], %[[C]] : f32
// CHECK-NEXT:    return %[[S]] : f32
func.func @f32(%p: f32) -> f32 {
  %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 4 : i32} : (f32) -> f32
  return %s : f32
}

// CHECK-LABEL:   func.func @whole_warp
// CHECK-COUNT-5:   gpu.shuffle xor
// CHECK-NOT:       gpu.shuffle
// CHECK:           return
func.func @whole_warp(%p: f32) -> f32 {
  %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 32 : i32} : (f32) -> f32
  return %s : f32
}

// One lane has its sum already.
// CHECK-LABEL: func.func @one_lane(
// CHECK-SAME:    %[[P:.*]]: f32)
// CHECK-NEXT:    return %[[P]] : f32
func.func @one_lane(%p: f32) -> f32 {
  %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 1 : i32} : (f32) -> f32
  return %s : f32
}

// CHECK-LABEL: func.func @maximum
// CHECK:         gpu.shuffle xor
// CHECK-NEXT:    arith.maximumf
func.func @maximum(%p: f32) -> f32 {
  %s = "ditto.lane_reduce"(%p) {kind = "arith.maximumf", lanes = 2 : i32} : (f32) -> f32
  return %s : f32
}

// A 64-bit value crosses in two halves.
// CHECK-LABEL: func.func @f64(
// CHECK-SAME:    %[[P:.*]]: f64)
// CHECK:         %[[V:.*]] = vector.{{.*}} %[[P]] : {{.*}}vector<1xf64>
// CHECK-NEXT:    %[[HALVES:.*]] = vector.bitcast %[[V]] : vector<1xf64> to vector<2xi32>
// CHECK-NEXT:    %[[LOW:.*]] = vector.extract %[[HALVES]][0] : i32 from vector<2xi32>
// CHECK-NEXT:    %[[L:.*]], %{{.*}} = gpu.shuffle xor %[[LOW]], %c1_i32, %c32_i32 : i32
// CHECK-NEXT:    %[[HIGH:.*]] = vector.extract %[[HALVES]][1] : i32 from vector<2xi32>
// CHECK-NEXT:    %[[H:.*]], %{{.*}} = gpu.shuffle xor %[[HIGH]], %c1_i32, %c32_i32 : i32
// CHECK-NEXT:    %[[MOVED:.*]] = vector.from_elements %[[L]], %[[H]] : vector<2xi32>
// CHECK-NEXT:    %[[W:.*]] = vector.bitcast %[[MOVED]] : vector<2xi32> to vector<1xf64>
// CHECK-NEXT:    %[[Q:.*]] = vector.extract %[[W]][0] : f64 from vector<1xf64>
// CHECK-NEXT:    %[[S:.*]] = arith.addf %[[P]], %[[Q]] : f64
// CHECK-NEXT:    return %[[S]] : f64
func.func @f64(%p: f64) -> f64 {
  %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 2 : i32} : (f64) -> f64
  return %s : f64
}

// A vector crosses element by element, and is added as a vector.
// CHECK-LABEL: func.func @vector(
// CHECK-SAME:    %[[P:.*]]: vector<2xf32>)
// CHECK:         %[[A:.*]] = vector.extract %[[P]][0] : f32 from vector<2xf32>
// CHECK-NEXT:    %[[A1:.*]], %{{.*}} = gpu.shuffle xor %[[A]], %c1_i32, %c32_i32 : f32
// CHECK-NEXT:    %[[B:.*]] = vector.extract %[[P]][1] : f32 from vector<2xf32>
// CHECK-NEXT:    %[[B1:.*]], %{{.*}} = gpu.shuffle xor %[[B]], %c1_i32, %c32_i32 : f32
// CHECK-NEXT:    %[[Q:.*]] = vector.from_elements %[[A1]], %[[B1]] : vector<2xf32>
// CHECK-NEXT:    %[[S:.*]] = arith.addf %[[P]], %[[Q]] : vector<2xf32>
// CHECK-NEXT:    return %[[S]]
func.func @vector(%p: vector<2xf32>) -> vector<2xf32> {
  %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 2 : i32} : (vector<2xf32>) -> vector<2xf32>
  return %s : vector<2xf32>
}

// CHECK-LABEL:   func.func @vector_f64
// CHECK-COUNT-4:   gpu.shuffle xor %{{.*}} : i32
// CHECK-NOT:       gpu.shuffle
// CHECK:           arith.addf %{{.*}} : vector<2xf64>
func.func @vector_f64(%p: vector<2xf64>) -> vector<2xf64> {
  %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 2 : i32} : (vector<2xf64>) -> vector<2xf64>
  return %s : vector<2xf64>
}

// A block of four warps: each reduces its own values, its first lane leaves the sum in shared memory, and every warp reduces
// those.  The second barrier lets the buffer be used again.
// CHECK-LABEL: gpu.module @blocks
// CHECK-NEXT:    memref.global "private" @[[BUFFER:.*]] : memref<4xf32, 3> = uninitialized
// CHECK-NEXT:    gpu.func @f32(%[[P:[a-z0-9]*]]: f32,
// CHECK:           %[[A:.*]], %{{.*}} = gpu.shuffle xor %[[P]], %c16_i32, %c32_i32 : f32
// CHECK-NEXT:      arith.addf %[[P]], %[[A]]
// CHECK:           gpu.shuffle xor %{{.*}}, %c8_i32, %c32_i32 : f32
// CHECK:           gpu.shuffle xor %{{.*}}, %c4_i32, %c32_i32 : f32
// CHECK:           gpu.shuffle xor %{{.*}}, %c2_i32, %c32_i32 : f32
// CHECK:           %[[E:.*]], %{{.*}} = gpu.shuffle xor %[[D:.*]], %c1_i32, %c32_i32 : f32
// CHECK-NEXT:      %[[W:.*]] = arith.addf %[[D]], %[[E]]
// CHECK-NEXT:      %[[SHARED:.*]] = memref.get_global @[[BUFFER]] : memref<4xf32, 3>
// CHECK-NEXT:      %[[T:.*]] = gpu.thread_id x
// CHECK-NEXT:      %[[WARP:.*]] = arith.divui %[[T]], %c32
// CHECK-NEXT:      %[[LANE:.*]] = arith.remui %[[T]], %c32
// CHECK-NEXT:      %[[LEADER:.*]] = arith.cmpi eq, %[[LANE]], %c0
// CHECK-NEXT:      scf.if %[[LEADER]] {
// CHECK-NEXT:        memref.store %[[W]], %[[SHARED]][%[[WARP]]] : memref<4xf32, 3>
// CHECK-NEXT:      }
// CHECK-NEXT:      gpu.barrier
// CHECK-NEXT:      %[[PLACE:.*]] = arith.remui %[[T]], %c4
// CHECK-NEXT:      %[[S0:.*]] = memref.load %[[SHARED]][%[[PLACE]]] : memref<4xf32, 3>
// CHECK-NEXT:      %[[X:.*]], %{{.*}} = gpu.shuffle xor %[[S0]], %c2_i32, %c32_i32 : f32
// CHECK-NEXT:      %[[S1:.*]] = arith.addf %[[S0]], %[[X]]
// CHECK-NEXT:      %[[Y:.*]], %{{.*}} = gpu.shuffle xor %[[S1]], %c1_i32, %c32_i32 : f32
// CHECK-NEXT:      %[[S:.*]] = arith.addf %[[S1]], %[[Y]]
// CHECK-NEXT:      gpu.barrier
// CHECK-NEXT:      memref.store %[[S]]
gpu.module @blocks {
  gpu.func @f32(%p: f32, %out: memref<1xf32>) kernel {
    %c0 = arith.constant 0 : index
    %s = "ditto.block_reduce"(%p) {kind = "arith.addf", threads = 128 : i32} : (f32) -> f32
    memref.store %s, %out[%c0] : memref<1xf32>
    gpu.return
  }
}

// Halves of a 64-bit value cross lanes; shared memory holds it whole.
// CHECK-LABEL:    gpu.module @halves
// CHECK-NEXT:       memref.global "private" @{{.*}} : memref<2xf64, 3> = uninitialized
// CHECK-NOT:        gpu.shuffle xor %{{.*}} : f64
// CHECK-COUNT-10:   gpu.shuffle xor %{{.*}} : i32
// CHECK:            memref.store %{{.*}} : memref<2xf64, 3>
// CHECK:            gpu.barrier
// CHECK:            memref.load %{{.*}} : memref<2xf64, 3>
// CHECK-COUNT-2:    gpu.shuffle xor %{{.*}}, %c1_i32, %c32_i32 : i32
// CHECK-NOT:        gpu.shuffle
// CHECK:            arith.addf %{{.*}} : f64
// CHECK-NEXT:       gpu.barrier
gpu.module @halves {
  gpu.func @f64(%p: f64, %out: memref<1xf64>) kernel {
    %c0 = arith.constant 0 : index
    %s = "ditto.block_reduce"(%p) {kind = "arith.addf", threads = 64 : i32} : (f64) -> f64
    memref.store %s, %out[%c0] : memref<1xf64>
    gpu.return
  }
}

// A block of one warp needs no shared memory and no barrier.
// CHECK-LABEL:   gpu.module @one_warp
// CHECK-NEXT:      gpu.func @f32
// CHECK-NOT:       gpu.barrier
// CHECK-COUNT-5:   gpu.shuffle xor
// CHECK-NOT:       gpu.{{shuffle|barrier}}
// CHECK:           gpu.return
gpu.module @one_warp {
  gpu.func @f32(%p: f32, %out: memref<1xf32>) kernel {
    %c0 = arith.constant 0 : index
    %s = "ditto.block_reduce"(%p) {kind = "arith.addf", threads = 32 : i32} : (f32) -> f32
    memref.store %s, %out[%c0] : memref<1xf32>
    gpu.return
  }
}

// Each reduction has a buffer of its own, as long as the block has warps.
// CHECK-LABEL:   gpu.module @two
// CHECK-COUNT-2:   memref.global "private" @{{.*}} : memref<32xf32, 3> = uninitialized
// CHECK:           gpu.func @f32
// CHECK:             arith.maximumf
// CHECK:             memref.get_global @[[FIRST:[a-z0-9_]*]] :
// CHECK-NOT:         memref.get_global @[[FIRST]] :
// CHECK:             memref.get_global @
// CHECK-NOT:         memref.get_global
// CHECK:             gpu.return
gpu.module @two {
  gpu.func @f32(%p: f32, %q: f32, %out: memref<2xf32>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %s = "ditto.block_reduce"(%p) {kind = "arith.maximumf", threads = 1024 : i32} : (f32) -> f32
    %t = "ditto.block_reduce"(%q) {kind = "arith.addf", threads = 1024 : i32} : (f32) -> f32
    memref.store %s, %out[%c0] : memref<2xf32>
    memref.store %t, %out[%c1] : memref<2xf32>
    gpu.return
  }
}
