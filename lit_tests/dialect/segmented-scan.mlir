// RUN: ditto-opt %s | FileCheck %s
// RUN: ditto-opt %s | ditto-opt | FileCheck %s
// RUN: ditto-opt --mlir-print-op-generic %s | ditto-opt | FileCheck %s

// The op prints as it was written, and again from its own print.
// CHECK-LABEL: func.func @kinds
// CHECK-NEXT:    %{{.*}}:2 = "ditto.segmented_scan"(%arg0, %arg2) {kind = "arith.addf", lanes = 32 : i32} : (f32, i32) -> (f32, f32)
// CHECK-NEXT:    %{{.*}}:2 = "ditto.segmented_scan"(%arg1, %arg2) {kind = "arith.maximumf", lanes = 8 : i32} : (vector<4xf64>, i32) -> (vector<4xf64>, vector<4xf64>)
func.func @kinds(%x: f32, %v: vector<4xf64>, %heads: i32) {
  %a, %b = "ditto.segmented_scan"(%x, %heads) {kind = "arith.addf", lanes = 32 : i32} : (f32, i32) -> (f32, f32)
  %c, %d = "ditto.segmented_scan"(%v, %heads) {kind = "arith.maximumf", lanes = 8 : i32} : (vector<4xf64>, i32) -> (vector<4xf64>, vector<4xf64>)
  return
}
