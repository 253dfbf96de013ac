// RUN: ditto-opt -p mlir-arith-unsigned-when-equivalent %s | FileCheck %s

// What 32 bits hold is none below 0 as an index; the argument may be.
// CHECK-LABEL: func.func @clamped
// CHECK:         %[[N:.*]] = arith.index_castui
// CHECK-NEXT:    arith.maxui %[[N]], %c0
// CHECK-NEXT:    arith.maxsi %arg3, %c0
func.func @clamped(%x: memref<?xf32>, %y: memref<?xf32>, %places: i32, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.index_castui %places : i32 to index
  %some = arith.maxsi %n, %c0 : index
  %other = arith.maxsi %m, %c0 : index
  scf.for %i = %c0 to %some step %c1 {
    %v = memref.load %x[%other] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
