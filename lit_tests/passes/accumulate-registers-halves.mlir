// RUN: ditto-opt -p 'accumulate-registers,canonicalize,cse' %s | FileCheck %s
// RUN: not ditto-opt -p 'accumulate-registers,segment-rows' %s 2>&1 | FileCheck %s --check-prefix=CUT

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CUT: ditto-opt: not-applicable: segment-rows: the sum is carried in f32 and rounded to f16 once; the pieces of a cut row would each be rounded

// The sum is carried in f32 through both loops; the old value is widened, added after them, and what is stored is rounded once.
// CHECK-LABEL: func.func @halves(
// CHECK-SAME:    %[[Y:[a-z0-9]*]]: memref<?x8xf16>)
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0{{.*}} : f32
// CHECK:           %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[A:.*]] = %[[ZERO]]) -> (f32) {
// CHECK-NOT:         truncf
// CHECK:             arith.addf %[[A]], %{{.*}} : f32
// CHECK:           %[[OLD:.*]] = memref.load %[[Y]]
// CHECK-NEXT:      %[[WIDE:.*]] = arith.extf %[[OLD]] : f16 to f32
// CHECK-NEXT:      %[[ALL:.*]] = arith.addf %[[WIDE]], %[[SUM]] : f32
// CHECK-NEXT:      %[[ROUNDED:.*]] = arith.truncf %[[ALL]] : f32 to f16
// CHECK-NEXT:      memref.store %[[ROUNDED]], %[[Y]]
func.func @halves(%A: tensor<?x?xf16, #CSR> {ditto.name = "A"}, %x: memref<?x8xf16>, %y: memref<?x8xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf16, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf16, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf16, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf16, #CSR> to memref<?xf16>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %p = %lo to %hi step %c1 {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf16>
      scf.for %k = %c0 to %c8 step %c1 {
        %old = memref.load %y[%i, %k] : memref<?x8xf16>
        %a = arith.extf %old : f16 to f32
        %w = arith.extf %v : f16 to f32
        %h = memref.load %x[%j, %k] : memref<?x8xf16>
        %b = arith.extf %h : f16 to f32
        %t = arith.mulf %w, %b : f32
        %n = arith.addf %a, %t : f32
        %r = arith.truncf %n : f32 to f16
        memref.store %r, %y[%i, %k] : memref<?x8xf16>
      }
    }
  }
  return
}
