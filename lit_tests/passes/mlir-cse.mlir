// RUN: ditto-opt -p mlir-cse %s | FileCheck %s

// What is added up twice is added up once; a load with a store before it is another load.
// CHECK-LABEL: func.func @shift
// CHECK:         scf.for %[[I:.*]] = %c0 to %arg2 step %c1 {
// CHECK-NEXT:      %[[J:.*]] = arith.addi %[[I]], %c1
// CHECK-NEXT:      %[[V:.*]] = memref.load %arg0[%[[J]]]
// CHECK-NEXT:      memref.store %[[V]], %arg1[%[[J]]]
// CHECK-NEXT:      %[[W:.*]] = memref.load %arg0[%[[J]]]
// CHECK-NEXT:      memref.store %[[W]], %arg1[%[[I]]]
func.func @shift(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %j = arith.addi %i, %c1 : index
    %v = memref.load %x[%j] : memref<?xf32>
    %k = arith.addi %i, %c1 : index
    memref.store %v, %y[%k] : memref<?xf32>
    %w = memref.load %x[%k] : memref<?xf32>
    memref.store %w, %y[%i] : memref<?xf32>
  }
  return
}
