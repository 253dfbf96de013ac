// RUN: ditto-opt -p lower-collectives,canonicalize,cse %s | FileCheck %s

// A lane takes what the lane 1, 2, ... before it has unless a run begins in between, which the word of heads says, shifted so that
// the lane's own bit is the highest.  What lanes before have comes from the lane before; the last lane's sum is the last run's.
// CHECK-LABEL: func.func @four(
// CHECK-SAME:    %[[V:.*]]: f32, %[[HEADS:.*]]: i32)
// CHECK-NOT:     ditto.
// CHECK:         %[[T:.*]] = gpu.thread_id x
// CHECK:         %[[R:.*]] = arith.remui %[[T]], %c4
// CHECK:         %[[LANE:.*]] = arith.index_cast %[[R]] : index to i32
// CHECK:         %[[RUNS:.*]] = arith.ori %[[HEADS]], %c1_i32
// CHECK:         %[[LEFT:.*]] = arith.subi %c31_i32, %[[LANE]]
// CHECK:         %[[WORD:.*]] = arith.shli %[[RUNS]], %[[LEFT]]
// CHECK:         %[[SAME1:.*]] = arith.cmpi ult, %[[WORD]], %c-2147483648_i32
// CHECK:         %[[A:.*]], %{{.*}} = gpu.shuffle up %[[V]], %c1_i32, %c32_i32 : f32
// CHECK:         %[[B:.*]] = arith.addf %[[A]], %[[V]]
// CHECK:         %[[C:.*]] = arith.select %[[SAME1]], %[[B]], %[[V]]
// CHECK:         %[[SAME2:.*]] = arith.cmpi ult, %[[WORD]], %c1073741824_i32
// CHECK:         %[[D:.*]], %{{.*}} = gpu.shuffle up %[[C]], %c2_i32, %c32_i32 : f32
// CHECK:         %[[E:.*]] = arith.addf %[[D]], %[[C]]
// CHECK:         %[[SUM:.*]] = arith.select %[[SAME2]], %[[E]], %[[C]]
// CHECK:         %[[F:.*]], %{{.*}} = gpu.shuffle up %[[SUM]], %c1_i32, %c32_i32 : f32
// CHECK:         %[[FIRST:.*]] = arith.cmpi eq, %[[LANE]], %c0_i32
// CHECK:         %[[BEFORE:.*]] = arith.select %[[FIRST]], %cst, %[[F]]
// CHECK:         %[[LAST:.*]] = arith.addi %{{.*}}, %c3_i32
// CHECK:         %[[TOTAL:.*]], %{{.*}} = gpu.shuffle idx %[[SUM]], %[[LAST]], %c32_i32 : f32
// CHECK-NEXT:    return %[[BEFORE]], %[[TOTAL]]
func.func @four(%v: f32, %heads: i32) -> (f32, f32) {
  %before, %total = "ditto.segmented_scan"(%v, %heads) {kind = "arith.addf", lanes = 4 : i32} : (f32, i32) -> (f32, f32)
  return %before, %total : f32, f32
}

// CHECK-LABEL:   func.func @whole_warp
// CHECK-COUNT-6:   gpu.shuffle up
// CHECK-NOT:       gpu.shuffle up
// CHECK:           gpu.shuffle idx
func.func @whole_warp(%v: f32, %heads: i32) -> (f32, f32) {
  %before, %total = "ditto.segmented_scan"(%v, %heads) {kind = "arith.addf", lanes = 32 : i32} : (f32, i32) -> (f32, f32)
  return %before, %total : f32, f32
}

// 64-bit values cross in two halves, vectors element by element.
// CHECK-LABEL:   func.func @wide
// CHECK-COUNT-8:   gpu.shuffle up %{{.*}} : i32
// CHECK-NOT:       gpu.shuffle up
// CHECK-COUNT-4:   gpu.shuffle idx %{{.*}} : i32
// CHECK-NOT:       gpu.shuffle idx
func.func @wide(%v: vector<2xf64>, %heads: i32) -> (vector<2xf64>, vector<2xf64>) {
  %before, %total = "ditto.segmented_scan"(%v, %heads) {kind = "arith.addf", lanes = 2 : i32} : (vector<2xf64>, i32) -> (vector<2xf64>, vector<2xf64>)
  return %before, %total : vector<2xf64>, vector<2xf64>
}
