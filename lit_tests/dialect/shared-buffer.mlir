// RUN: ditto-opt %s | FileCheck %s
// RUN: ditto-opt %s | ditto-opt | FileCheck %s
// RUN: ditto-opt --mlir-print-op-generic %s | ditto-opt | FileCheck %s
// RUN: ditto-opt -p canonicalize,cse %s | FileCheck %s

// Two buffers of the same type are two buffers; a fence stays where it is.
// CHECK-LABEL: func.func @buffers
// CHECK-NEXT:    %[[A:.*]] = "ditto.shared_buffer"() : () -> memref<64xf32, 3>
// CHECK-NEXT:    %[[B:.*]] = "ditto.shared_buffer"() : () -> memref<64xf32, 3>
// CHECK-NEXT:    %[[C:.*]] = "ditto.shared_buffer"() : () -> memref<1xi32, 3>
// CHECK-NEXT:    memref.store %arg0, %[[A]][%arg1]
// CHECK-NEXT:    "ditto.fence"() : () -> ()
// CHECK-NEXT:    memref.store %arg0, %[[B]][%arg1]
// CHECK-NEXT:    memref.store %arg2, %[[C]][%arg1]
// CHECK-NEXT:    "ditto.fence"() : () -> ()
// CHECK-NEXT:    return
func.func @buffers(%x: f32, %i: index, %n: i32) {
  %a = "ditto.shared_buffer"() : () -> memref<64xf32, 3>
  %b = "ditto.shared_buffer"() : () -> memref<64xf32, 3>
  %c = "ditto.shared_buffer"() : () -> memref<1xi32, 3>
  memref.store %x, %a[%i] : memref<64xf32, 3>
  "ditto.fence"() : () -> ()
  memref.store %x, %b[%i] : memref<64xf32, 3>
  memref.store %n, %c[%i] : memref<1xi32, 3>
  "ditto.fence"() : () -> ()
  return
}
