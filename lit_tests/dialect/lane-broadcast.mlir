// RUN: ditto-opt %s | FileCheck %s
// RUN: ditto-opt %s | ditto-opt | FileCheck %s
// RUN: ditto-opt --mlir-print-op-generic %s | ditto-opt | FileCheck %s

// The op prints as it was written, and again from its own print.
// CHECK-LABEL: func.func @types
// CHECK-NEXT:    %[[A:.*]] = "ditto.lane_broadcast"(%arg0, %arg3) {lanes = 8 : i32} : (f32, index) -> f32
// CHECK-NEXT:    %[[B:.*]] = "ditto.lane_broadcast"(%arg1, %arg3) {lanes = 32 : i32} : (i16, index) -> i16
// CHECK-NEXT:    %[[C:.*]] = "ditto.lane_broadcast"(%arg2, %arg3) {lanes = 2 : i32} : (vector<4xf64>, index) -> vector<4xf64>
// CHECK-NEXT:    return %[[A]], %[[B]], %[[C]]
func.func @types(%x: f32, %y: i16, %v: vector<4xf64>, %k: index) -> (f32, i16, vector<4xf64>) {
  %a = "ditto.lane_broadcast"(%x, %k) {lanes = 8 : i32} : (f32, index) -> f32
  %b = "ditto.lane_broadcast"(%y, %k) {lanes = 32 : i32} : (i16, index) -> i16
  %c = "ditto.lane_broadcast"(%v, %k) {lanes = 2 : i32} : (vector<4xf64>, index) -> vector<4xf64>
  return %a, %b, %c : f32, i16, vector<4xf64>
}
