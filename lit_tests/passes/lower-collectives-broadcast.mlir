// RUN: ditto-opt -p lower-collectives,canonicalize,cse %s | FileCheck %s

// A shuffle counts lanes from the start of the warp, whose lanes it all names; the group's first lane is added.
// CHECK-LABEL: func.func @group(
// CHECK-SAME:    %[[V:.*]]: f32, %[[K:.*]]: index)
// CHECK-NOT:     ditto.
// CHECK:         %[[T:.*]] = gpu.thread_id x
// CHECK-NEXT:    %[[LANE:.*]] = arith.remui %[[T]], %c32
// CHECK-NEXT:    %[[PLACE:.*]] = arith.remui %[[LANE]], %c8
// CHECK-NEXT:    %[[FIRST:.*]] = arith.subi %[[LANE]], %[[PLACE]]
// CHECK-NEXT:    %[[AT:.*]] = arith.addi %[[FIRST]], %[[K]]
// CHECK-NEXT:    %[[SOURCE:.*]] = arith.index_cast %[[AT]] : index to i32
// CHECK-NEXT:    %[[S:.*]], %{{.*}} = gpu.shuffle idx %[[V]], %[[SOURCE]], %c32_i32 : f32
// CHECK-NEXT:    return %[[S]] : f32
func.func @group(%v: f32, %k: index) -> f32 {
  %s = "ditto.lane_broadcast"(%v, %k) {lanes = 8 : i32} : (f32, index) -> f32
  return %s : f32
}

// CHECK-LABEL: func.func @warp(
// CHECK-NOT:     gpu.thread_id
// CHECK:         gpu.shuffle idx %{{.*}}, %{{.*}}, %c32_i32 : i32
func.func @warp(%v: i32, %k: index) -> i32 {
  %s = "ditto.lane_broadcast"(%v, %k) {lanes = 32 : i32} : (i32, index) -> i32
  return %s : i32
}

// Narrow coordinates cross as 32 bits, wide ones and doubles in two halves.
// CHECK-LABEL: func.func @narrow(
// CHECK:         %[[W:.*]] = arith.extui %{{.*}} : i16 to i32
// CHECK-NEXT:    %[[S:.*]], %{{.*}} = gpu.shuffle idx %[[W]]
// CHECK-NEXT:    arith.trunci %[[S]] : i32 to i16
func.func @narrow(%v: i16, %k: index) -> i16 {
  %s = "ditto.lane_broadcast"(%v, %k) {lanes = 32 : i32} : (i16, index) -> i16
  return %s : i16
}

// CHECK-LABEL:   func.func @wide(
// CHECK-COUNT-4:   gpu.shuffle idx %{{.*}} : i32
// CHECK-NOT:       gpu.shuffle
// CHECK:           return
func.func @wide(%v: i64, %w: f64, %k: index) -> (i64, f64) {
  %s = "ditto.lane_broadcast"(%v, %k) {lanes = 32 : i32} : (i64, index) -> i64
  %t = "ditto.lane_broadcast"(%w, %k) {lanes = 32 : i32} : (f64, index) -> f64
  return %s, %t : i64, f64
}

// The largest of unsigned numbers, over lanes that lie apart.
// CHECK-LABEL: func.func @longest(
// CHECK:         gpu.shuffle xor %{{.*}}, %c16_i32, %c32_i32 : i32
// CHECK-NEXT:    arith.maxui
// CHECK-NEXT:    gpu.shuffle xor %{{.*}}, %c8_i32, %c32_i32 : i32
// CHECK-NEXT:    arith.maxui
func.func @longest(%v: i32) -> i32 {
  %s = "ditto.lane_reduce"(%v) {kind = "arith.maxui", lanes = 4 : i32, stride = 8 : i32} : (i32) -> i32
  return %s : i32
}
