// RUN: ditto-opt -p fuse-multiply-add %s | FileCheck %s

// The product may be either operand of the sum.
// CHECK-LABEL: func.func @either(
// CHECK-SAME:    %[[X:.*]]: f32, %[[A:.*]]: f32, %[[B:.*]]: f32)
// CHECK-NEXT:    %[[S:.*]] = math.fma %[[A]], %[[B]], %[[X]] : f32
// CHECK-NEXT:    %[[T:.*]] = math.fma %[[A]], %[[B]], %[[S]] : f32
// CHECK-NEXT:    return %[[T]]
func.func @either(%x: f32, %a: f32, %b: f32) -> f32 {
  %p = arith.mulf %a, %b : f32
  %s = arith.addf %x, %p : f32
  %q = arith.mulf %a, %b : f32
  %t = arith.addf %q, %s : f32
  return %t : f32
}

// CHECK-LABEL: func.func @types
// CHECK-NEXT:    math.fma %{{.*}} : f64
// CHECK-NEXT:    math.fma %{{.*}} : vector<4xf32>
// CHECK-NEXT:    return
func.func @types(%x: f64, %v: vector<4xf32>) -> (f64, vector<4xf32>) {
  %p = arith.mulf %x, %x : f64
  %s = arith.addf %x, %p : f64
  %q = arith.mulf %v, %v : vector<4xf32>
  %t = arith.addf %v, %q : vector<4xf32>
  return %s, %t : f64, vector<4xf32>
}

// Both operands are products: one of them is contracted.
// CHECK-LABEL: func.func @two_products(
// CHECK-SAME:    %[[A:.*]]: f32, %[[B:.*]]: f32)
// CHECK-NEXT:    %[[P:.*]] = arith.mulf %[[A]], %[[A]]
// CHECK-NEXT:    math.fma %[[B]], %[[B]], %[[P]]
// CHECK-NEXT:    return
func.func @two_products(%a: f32, %b: f32) -> f32 {
  %p = arith.mulf %a, %a : f32
  %q = arith.mulf %b, %b : f32
  %s = arith.addf %p, %q : f32
  return %s : f32
}

// A product that something else uses, or that is added to itself, stays; so does a difference.
// CHECK-LABEL: func.func @stays
// CHECK-NOT:     math.fma
// CHECK:         return
func.func @stays(%x: f32, %a: f32, %b: f32) -> (f32, f32, f32, f32) {
  %p = arith.mulf %a, %b : f32
  %s = arith.addf %x, %p : f32
  %q = arith.mulf %a, %b : f32
  %t = arith.addf %q, %q : f32
  %r = arith.mulf %a, %b : f32
  %d = arith.subf %x, %r : f32
  return %p, %s, %t, %d : f32, f32, f32, f32
}

// In a loop, and in a gpu.func.
// CHECK-LABEL: gpu.func @kernel
// CHECK:         scf.for
// CHECK-NEXT:      math.fma
// CHECK-NEXT:      scf.yield
gpu.module @kernels {
  gpu.func @kernel(%a: f32, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %s = scf.for %i = %c0 to %n step %c1 iter_args(%x = %a) -> (f32) {
      %p = arith.mulf %a, %a : f32
      %t = arith.addf %x, %p : f32
      scf.yield %t : f32
    }
    gpu.return
  }
}
