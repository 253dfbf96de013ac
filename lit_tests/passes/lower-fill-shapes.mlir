// RUN: ditto-opt -p lower-fill,canonicalize,cse %s | FileCheck %s

// CHECK-LABEL: func.func @vector
// CHECK:         %[[N:.*]] = memref.dim %arg0, %c0 : memref<?xf64>
// CHECK:         arith.ceildivui %[[N]], %c256
// CHECK:         scf.if
// CHECK-NEXT:      memref.store %cst, %arg0[%{{.*}}] : memref<?xf64>
func.func @vector(%y: memref<?xf64>) {
  %one = arith.constant 1.0 : f64
  linalg.fill ins(%one : f64) outs(%y : memref<?xf64>)
  return
}

// A static shape needs no size at run time.
// CHECK-LABEL: func.func @static
// CHECK-NOT:     memref.dim
// CHECK:         scf.forall (%{{.*}}) in (2) {
// CHECK:           arith.cmpi ult, %{{.*}}, %c300
func.func @static(%y: memref<300xf32>) {
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%one : f32) outs(%y : memref<300xf32>)
  return
}

// Both sizes are taken of the buffer.
// CHECK-LABEL: func.func @dynamic
// CHECK-DAG:     %[[M:.*]] = memref.dim %arg0, %c0
// CHECK-DAG:     %[[K:.*]] = memref.dim %arg0, %c1
// CHECK:         arith.muli
// CHECK:         arith.remui %[[E:.*]], %[[K]]
// CHECK-NEXT:    arith.divui %[[E]], %[[K]]
func.func @dynamic(%C: memref<?x?xf32>) {
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%one : f32) outs(%C : memref<?x?xf32>)
  return
}

// CHECK-LABEL: func.func @no_fill
// CHECK-NEXT:    return
func.func @no_fill() {
  return
}
