// RUN: ditto-opt -p mlir-canonicalize %s | FileCheck %s
// RUN: ditto-opt -p 'mlir-canonicalize{top-down=false}' %s | FileCheck %s
// RUN: ditto-opt -p canonicalize %s | FileCheck %s

// An addition of nothing is folded.  Upstream's own name runs upstream's pass, which gives the same here.
// CHECK-LABEL: func.func @copy
// CHECK:         scf.for %[[I:.*]] = %c0 to %arg2 step %c1 {
// CHECK-NEXT:      %[[V:.*]] = memref.load %arg0[%[[I]]]
// CHECK-NEXT:      memref.store %[[V]], %arg1[%[[I]]]
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %j = arith.addi %i, %c0 : index
    %v = memref.load %x[%j] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
