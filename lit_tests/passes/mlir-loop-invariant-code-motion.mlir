// RUN: ditto-opt -p mlir-loop-invariant-code-motion %s | FileCheck %s

// The arithmetic moves out of the loop over rows, the load stays.
// CHECK-LABEL: func.func @gather
// CHECK:         %[[J:.*]] = arith.addi %arg2, %c1
// CHECK-NEXT:    scf.for %[[I:.*]] = %c0 to %arg2 step %c1 {
// CHECK-NEXT:      %[[V:.*]] = memref.load %arg0[%[[J]]]
// CHECK-NEXT:      memref.store %[[V]], %arg1[%[[I]]]
func.func @gather(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %j = arith.addi %n, %c1 : index
    %v = memref.load %x[%j] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
