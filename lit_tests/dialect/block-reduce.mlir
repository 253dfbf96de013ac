// RUN: ditto-opt %s | FileCheck %s
// RUN: ditto-opt %s | ditto-opt | FileCheck %s
// RUN: ditto-opt --mlir-print-op-generic %s | ditto-opt | FileCheck %s

// The op prints as it was written, and again from its own print.
// CHECK-LABEL: func.func @kinds
// CHECK-NEXT:    %[[A:.*]] = "ditto.block_reduce"(%arg0) {kind = "arith.addf", threads = 128 : i32} : (f32) -> f32
// CHECK-NEXT:    %[[B:.*]] = "ditto.block_reduce"(%arg1) {kind = "arith.maximumf", threads = 1024 : i32} : (f64) -> f64
// CHECK-NEXT:    %[[C:.*]] = "ditto.block_reduce"(%arg2) {kind = "arith.addf", threads = 128 : i32} : (vector<4xf32>) -> vector<4xf32>
// CHECK-NEXT:    return %[[A]], %[[B]], %[[C]]
func.func @kinds(%x: f32, %y: f64, %v: vector<4xf32>) -> (f32, f64, vector<4xf32>) {
  %a = "ditto.block_reduce"(%x) {kind = "arith.addf", threads = 128 : i32} : (f32) -> f32
  %b = "ditto.block_reduce"(%y) {kind = "arith.maximumf", threads = 1024 : i32} : (f64) -> f64
  %c = "ditto.block_reduce"(%v) {kind = "arith.addf", threads = 128 : i32} : (vector<4xf32>) -> vector<4xf32>
  return %a, %b, %c : f32, f64, vector<4xf32>
}
