// RUN: ditto-opt %s | FileCheck %s
// RUN: ditto-opt %s | ditto-opt | FileCheck %s
// RUN: ditto-opt --mlir-print-op-generic %s | ditto-opt | FileCheck %s
// RUN: ditto-opt -p canonicalize,cse %s | FileCheck %s

// The op prints as it was written, and again from its own print; nothing folds it.
// CHECK-LABEL: func.func @kinds
// CHECK-NEXT:    %[[A:.*]] = "ditto.group_reduce"(%arg0, %arg3) {kind = "arith.addf"} : (f32, index) -> f32
// CHECK-NEXT:    %[[B:.*]] = "ditto.group_reduce"(%arg1, %arg3) {kind = "arith.maximumf"} : (f64, index) -> f64
// CHECK-NEXT:    %[[C:.*]] = "ditto.group_reduce"(%arg2, %arg3) {kind = "arith.minnumf"} : (vector<4xf32>, index) -> vector<4xf32>
// CHECK-NEXT:    return %[[A]], %[[B]], %[[C]]
func.func @kinds(%x: f32, %y: f64, %v: vector<4xf32>, %shift: index) -> (f32, f64, vector<4xf32>) {
  %a = "ditto.group_reduce"(%x, %shift) {kind = "arith.addf"} : (f32, index) -> f32
  %b = "ditto.group_reduce"(%y, %shift) {kind = "arith.maximumf"} : (f64, index) -> f64
  %c = "ditto.group_reduce"(%v, %shift) {kind = "arith.minnumf"} : (vector<4xf32>, index) -> vector<4xf32>
  return %a, %b, %c : f32, f64, vector<4xf32>
}
