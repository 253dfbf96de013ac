// RUN: ditto-opt -p stream-entries,canonicalize,cse %s | FileCheck %s
// RUN: ditto-opt -p 'stream-entries,unroll{factor=4},canonicalize,cse' %s | FileCheck %s --check-prefix=UNROLLED
// RUN: ditto-opt -p 'unroll{factor=4},stream-entries,canonicalize,cse' %s | FileCheck %s --check-prefix=UNROLLED
// RUN: ditto-opt -p 'stream-entries,segment-rows,canonicalize,cse' %s | FileCheck %s --check-prefix=SEGMENTS
// RUN: ditto-opt -p 'segment-rows,stream-entries,canonicalize,cse' %s | FileCheck %s --check-prefix=SEGMENTS
// RUN: ditto-opt -p 'stream-entries,bin-rows,canonicalize,cse' %s | FileCheck %s --check-prefix=BINS
// RUN: ditto-opt -p 'stream-entries,stream-entries,canonicalize,cse' %s | FileCheck %s

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Coordinates and values are marked; positions, the dense operand and the output are not.
// CHECK-LABEL: func.func @spmv
// CHECK:         %[[POS:.*]] = sparse_tensor.positions
// CHECK:         %[[CRD:.*]] = sparse_tensor.coordinates
// CHECK:         %[[VAL:.*]] = sparse_tensor.values
// CHECK:         memref.load %[[POS]][%{{.*}}] : memref<?xindex>
// CHECK:         memref.load %[[POS]][%{{.*}}] : memref<?xindex>
// CHECK-NEXT:    memref.load %arg2[%{{.*}}] : memref<?xf32>
// CHECK-NEXT:    scf.for %[[P:[a-z0-9]*]] =
// CHECK-NEXT:      %[[J:.*]] = memref.load %[[CRD]][%[[P]]] {nontemporal = true} : memref<?xindex>
// CHECK-NEXT:      %[[V:.*]] = memref.load %[[VAL]][%[[P]]] {nontemporal = true} : memref<?xf32>
// CHECK-NEXT:      memref.load %arg1[%[[J]]] : memref<?xf32>
// CHECK-NOT:       nontemporal
// CHECK:           return

// Copies are marked as their original is, in either order: four entries at a time, and one of the rest.
// UNROLLED-LABEL:     func.func @spmv
// UNROLLED:             step %c4
// UNROLLED-COUNT-8:     nontemporal = true
// UNROLLED:             step %c1
// UNROLLED-COUNT-2:     nontemporal = true
// UNROLLED-NOT:         nontemporal
// UNROLLED:             return

// A segment's row and positions are read once too, but neighbours read the same sector.
// SEGMENTS-LABEL:   func.func @spmv
// SEGMENTS-COUNT-3:   memref.load %arg{{[34]}}[%{{.*}}] : memref<?xi32>
// SEGMENTS-COUNT-2:   nontemporal = true
// SEGMENTS-NOT:       nontemporal
// SEGMENTS:           return

// Marked before they are binned, entries are marked in both kernels.
// BINS-LABEL:   func.func @spmv
// BINS-COUNT-2:   nontemporal = true
// BINS:           scf.forall
// BINS-COUNT-2:   nontemporal = true
// BINS-NOT:       nontemporal
// BINS:           ditto.block_reduce
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
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
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
