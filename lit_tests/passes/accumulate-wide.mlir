// RUN: ditto-opt -p 'accumulate-registers,accumulate-wide,canonicalize,cse' %s | FileCheck %s

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Values are widened where they are loaded, the old value is added after the sum, and what is stored is rounded once.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>, %[[ALPHA:[a-z0-9]*]]: f32)
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0{{.*}} : f64
// CHECK:         scf.for
// CHECK:           %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[A:.*]] = %[[ZERO]]) -> (f64) {
// CHECK:             %[[V:.*]] = memref.load %{{.*}} : memref<?xf32>
// CHECK-NEXT:        %[[VW:.*]] = arith.extf %[[V]] : f32 to f64
// CHECK:             %[[B:.*]] = memref.load %[[X]]
// CHECK-NEXT:        %[[BW:.*]] = arith.extf %[[B]] : f32 to f64
// CHECK-NEXT:        %[[T:.*]] = arith.mulf %[[VW]], %[[BW]] : f64
// CHECK-NEXT:        %[[N:.*]] = arith.addf %[[A]], %[[T]] : f64
// CHECK-NEXT:        scf.yield %[[N]] : f64
// CHECK:           %[[W:.*]] = arith.extf %[[ALPHA]] : f32 to f64
// CHECK:           %[[S:.*]] = arith.mulf %[[SUM]], %[[W]] : f64
// CHECK:           %[[OLD:.*]] = memref.load %[[Y]]
// CHECK-NEXT:      %[[OLDW:.*]] = arith.extf %[[OLD]] : f32 to f64
// CHECK-NEXT:      %[[ALL:.*]] = arith.addf %[[OLDW]], %[[S]] : f64
// CHECK-NEXT:      %[[R:.*]] = arith.truncf %[[ALL]] : f64 to f32
// CHECK-NEXT:      memref.store %[[R]], %[[Y]]
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>, %alpha: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%j] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %u = arith.mulf %t, %alpha : f32
      %n = arith.addf %a, %u : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
