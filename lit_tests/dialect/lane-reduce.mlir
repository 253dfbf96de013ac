// RUN: ditto-opt %s | FileCheck %s
// RUN: ditto-opt %s | ditto-opt | FileCheck %s
// RUN: ditto-opt --mlir-print-op-generic %s | ditto-opt | FileCheck %s

// The op prints as it was written, and again from its own print.
// CHECK-LABEL: func.func @kinds
// CHECK-NEXT:    %[[A:.*]] = "ditto.lane_reduce"(%arg0) {kind = "arith.addf", lanes = 8 : i32} : (f32) -> f32
// CHECK-NEXT:    %[[B:.*]] = "ditto.lane_reduce"(%arg1) {kind = "arith.maximumf", lanes = 32 : i32} : (f64) -> f64
// CHECK-NEXT:    %[[C:.*]] = "ditto.lane_reduce"(%arg2) {kind = "arith.addf", lanes = 2 : i32} : (vector<4xf32>) -> vector<4xf32>
// CHECK-NEXT:    return %[[A]], %[[B]], %[[C]]
func.func @kinds(%x: f32, %y: f64, %v: vector<4xf32>) -> (f32, f64, vector<4xf32>) {
  %a = "ditto.lane_reduce"(%x) {kind = "arith.addf", lanes = 8 : i32} : (f32) -> f32
  %b = "ditto.lane_reduce"(%y) {kind = "arith.maximumf", lanes = 32 : i32} : (f64) -> f64
  %c = "ditto.lane_reduce"(%v) {kind = "arith.addf", lanes = 2 : i32} : (vector<4xf32>) -> vector<4xf32>
  return %a, %b, %c : f32, f64, vector<4xf32>
}
