// RUN: ditto-opt -p 'unroll{factor=2},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'unroll{factor=1},canonicalize,cse' %s | FileCheck %s --check-prefix=ONE
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8 share=entries},unroll{factor=4},canonicalize,cse' %s | FileCheck %s --check-prefix=LANES
// RUN: ditto-opt -p 'unroll{factor=2 tail=clamp},canonicalize,cse' %s | FileCheck %s --check-prefix=CLAMP
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8 share=entries},unroll{factor=4 tail=clamp},canonicalize,cse' %s | FileCheck %s --check-prefix=SHARED

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Two entries at a time: the loads of both come before the sums, which keep their order; a second loop does what is left over.
// An empty row has a span of 0, and lanes that start past the end a negative one, which counts as 0.
// CHECK-LABEL: func.func @spmv
// CHECK:         %[[LO:.*]] = memref.load %[[POS:[0-9a-z%]*]][%arg3]
// CHECK:         %[[HI:.*]] = memref.load %[[POS]]
// CHECK:         %[[Y0:.*]] = memref.load %arg2[%arg3]
// CHECK-NEXT:    %[[SPAN:.*]] = arith.subi %[[HI]], %[[LO]]
// CHECK-NEXT:    %[[TRIPS:.*]] = arith.maxsi %[[SPAN]], %c0
// CHECK-NEXT:    %[[GROUPS:.*]] = arith.divui %[[TRIPS]], %c2
// CHECK-NEXT:    %[[WHOLE:.*]] = arith.muli %[[GROUPS]], %c2
// CHECK-NEXT:    %[[EVEN:.*]] = arith.addi %[[LO]], %[[WHOLE]]
// CHECK-NEXT:    %[[MAIN:.*]] = scf.for %[[P:.*]] = %[[LO]] to %[[EVEN]] step %c2 iter_args(%[[A:.*]] = %[[Y0]]) -> (f32) {
// CHECK-NEXT:      %[[J0:.*]] = memref.load %[[CRD:.*]][%[[P]]]
// CHECK-NEXT:      %[[V0:.*]] = memref.load %[[VAL:.*]][%[[P]]]
// CHECK-NEXT:      %[[X0:.*]] = memref.load %arg1[%[[J0]]]
// CHECK-NEXT:      %[[T0:.*]] = arith.mulf %[[V0]], %[[X0]]
// CHECK-NEXT:      %[[P1:.*]] = arith.addi %[[P]], %c1
// CHECK-NEXT:      %[[J1:.*]] = memref.load %[[CRD]][%[[P1]]]
// CHECK-NEXT:      %[[V1:.*]] = memref.load %[[VAL]][%[[P1]]]
// CHECK-NEXT:      %[[X1:.*]] = memref.load %arg1[%[[J1]]]
// CHECK-NEXT:      %[[T1:.*]] = arith.mulf %[[V1]], %[[X1]]
// CHECK-NEXT:      %[[N0:.*]] = arith.addf %[[A]], %[[T0]]
// CHECK-NEXT:      %[[N1:.*]] = arith.addf %[[N0]], %[[T1]]
// CHECK-NEXT:      scf.yield %[[N1]]
// CHECK-NEXT:    } {ditto.unrolled}
// CHECK-NEXT:    %[[S:.*]] = scf.for %{{.*}} = %[[EVEN]] to %[[HI]] step %c1 iter_args(%[[B:.*]] = %[[MAIN]]) -> (f32) {
// CHECK-COUNT-3:   memref.load
// CHECK-NOT:       memref.load
// CHECK:           arith.addf %[[B]]
// CHECK:         } {ditto.unrolled}
// CHECK-NEXT:    memref.store %[[S]]

// A lane's stride grows with the factor: lane l takes the entries l, l + 8, l + 16, l + 24, then l + 32 …
// The number of its entries is the span over the stride, rounded up.
// LANES-LABEL: func.func @spmv
// LANES:         %[[FIRST:.*]] = arith.addi %{{.*}}, %arg4
// LANES:         %[[SPAN:.*]] = arith.subi %[[HI:.*]], %[[FIRST]]
// LANES-NEXT:    %[[SOME:.*]] = arith.maxsi %[[SPAN]], %c0
// LANES-NEXT:    %[[TRIPS:.*]] = arith.ceildivui %[[SOME]], %c8
// LANES-NEXT:    %[[GROUPS:.*]] = arith.divui %[[TRIPS]], %c4
// LANES:         scf.for %[[P:.*]] = %[[FIRST]] to %[[MIDDLE:.*]] step %c32
// LANES:           arith.addi %[[P]], %c8 :
// LANES:           arith.addi %[[P]], %c16 :
// LANES:           arith.addi %[[P]], %c24 :
// LANES:         scf.for %{{.*}} = %[[MIDDLE]] to %[[HI]] step %c8

// One loop: what is past the end loads the first entry of its group again, and its sum is not taken.
// CLAMP-LABEL: func.func @spmv
// CLAMP:         %[[LO:.*]] = memref.load %[[POS:[0-9a-z%]*]][%arg3]
// CLAMP:         %[[HI:.*]] = memref.load %[[POS]]
// CLAMP:         %[[Y0:.*]] = memref.load %arg2[%arg3]
// CLAMP-NEXT:    %[[S:.*]] = scf.for %[[P:.*]] = %[[LO]] to %[[HI]] step %c2 iter_args(%[[A:.*]] = %[[Y0]]) -> (f32) {
// CLAMP-NEXT:      %[[J0:.*]] = memref.load %[[CRD:.*]][%[[P]]]
// CLAMP-NEXT:      %[[V0:.*]] = memref.load %[[VAL:.*]][%[[P]]]
// CLAMP-NEXT:      %[[X0:.*]] = memref.load %arg1[%[[J0]]]
// CLAMP-NEXT:      %[[T0:.*]] = arith.mulf %[[V0]], %[[X0]]
// CLAMP-NEXT:      %[[P1:.*]] = arith.addi %[[P]], %c1
// CLAMP-NEXT:      %[[IN:.*]] = arith.cmpi slt, %[[P1]], %[[HI]]
// CLAMP-NEXT:      %[[Q:.*]] = arith.select %[[IN]], %[[P1]], %[[P]]
// CLAMP-NEXT:      %[[J1:.*]] = memref.load %[[CRD]][%[[Q]]]
// CLAMP-NEXT:      %[[V1:.*]] = memref.load %[[VAL]][%[[Q]]]
// CLAMP-NEXT:      %[[X1:.*]] = memref.load %arg1[%[[J1]]]
// CLAMP-NEXT:      %[[T1:.*]] = arith.mulf %[[V1]], %[[X1]]
// CLAMP-NEXT:      %[[N0:.*]] = arith.addf %[[A]], %[[T0]]
// CLAMP-NEXT:      %[[N1:.*]] = arith.addf %[[N0]], %[[T1]]
// CLAMP-NEXT:      %[[N:.*]] = arith.select %[[IN]], %[[N1]], %[[N0]]
// CLAMP-NEXT:      scf.yield %[[N]]
// CLAMP-NEXT:    } {ditto.unrolled}
// CLAMP-NEXT:    memref.store %[[S]]

// Each lane clamps its own entries, which lie eight apart.
// SHARED-LABEL: func.func @spmv
// SHARED:         %[[FIRST:.*]] = arith.addi %{{.*}}, %arg4
// SHARED-NEXT:    scf.for %[[P:.*]] = %[[FIRST]] to %[[HI:.*]] step %c32 iter_args
// SHARED:           %[[P1:.*]] = arith.addi %[[P]], %c8 :
// SHARED-NEXT:      %[[IN1:.*]] = arith.cmpi slt, %[[P1]], %[[HI]]
// SHARED-NEXT:      arith.select %[[IN1]], %[[P1]], %[[P]] : index
// SHARED:           %[[P2:.*]] = arith.addi %[[P]], %c16 :
// SHARED-NEXT:      %[[IN2:.*]] = arith.cmpi slt, %[[P2]], %[[HI]]
// SHARED-NEXT:      arith.select %[[IN2]], %[[P2]], %[[P]] : index
// SHARED:           %[[P3:.*]] = arith.addi %[[P]], %c24 :
// SHARED-NEXT:      %[[IN3:.*]] = arith.cmpi slt, %[[P3]], %[[HI]]
// SHARED-NEXT:      arith.select %[[IN3]], %[[P3]], %[[P]] : index
// SHARED:           arith.select %[[IN1]]
// SHARED:           arith.select %[[IN2]]
// SHARED:           arith.select %[[IN3]]
// SHARED-NOT:     scf.for
// SHARED:         "ditto.lane_reduce"

// A factor of 1 changes nothing but the mark.
// ONE-LABEL: func.func @spmv
// ONE:         scf.for
// ONE:           scf.for
// ONE-COUNT-3:     memref.load
// ONE-NOT:         memref.load
// ONE:           } {ditto.unrolled}
// ONE-NEXT:      memref.store
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: memref<?xf32>, %y: memref<?xf32>) {
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

// The factor divides the constant trip count of a block's columns: there is no second loop.  The outer reduction stays as it was.
// CHECK-LABEL: func.func @blocks
// CHECK:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c1 iter_args
// CHECK-NEXT:      %{{.*}} = scf.for %[[Q:.*]] = %c0 to %c4 step %c2 iter_args
// CHECK-NOT:         scf.for
// CHECK:           } {ditto.unrolled}
// CHECK-NEXT:      scf.yield
// CHECK-NEXT:    }{{$}}
// CHECK-NEXT:    memref.store

// One loop either way.
// CLAMP-LABEL: func.func @blocks
// CLAMP:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c1 iter_args
// CLAMP-NEXT:      scf.for %[[Q:.*]] = %c0 to %c4 step %c2 iter_args
// CLAMP-NOT:         scf.for
// CLAMP:           } {ditto.unrolled}
// CLAMP-NEXT:      scf.yield
func.func @blocks(%pos: memref<?xindex>, %val: memref<?x4xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %t = scf.for %q = %c0 to %c4 step %c1 iter_args(%b = %a) -> (f32) {
        %v = memref.load %val[%p, %q] : memref<?x4xf32>
        %n = arith.addf %b, %v : f32
        scf.yield %n : f32
      }
      scf.yield %t : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// It does not divide 5: the last iteration stands alone.
// CHECK-LABEL: func.func @five
// CHECK:         %[[MAIN:.*]] = scf.for %{{.*}} = %c0 to %c4 step %c2
// CHECK:         } {ditto.unrolled}
// CHECK-NOT:     scf.for
// CHECK:         memref.load %arg0[%c4]
// CHECK-NEXT:    arith.addf %[[MAIN]]

// A constant bound is compared with as well.
// CLAMP-LABEL: func.func @five
// CLAMP:         scf.for %[[Q:.*]] = %c0 to %c5 step %c2
// CLAMP:           %[[Q1:.*]] = arith.addi %[[Q]], %c1
// CLAMP-NEXT:      %[[IN:.*]] = arith.cmpi slt, %[[Q1]], %c5
// CLAMP-NEXT:      %[[AT:.*]] = arith.select %[[IN]], %[[Q1]], %[[Q]]
// CLAMP-NEXT:      memref.load %arg0[%[[AT]]]
// CLAMP:         } {ditto.unrolled}
func.func @five(%x: memref<5xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  scf.for %i = %c0 to %m step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %q = %c0 to %c5 step %c1 iter_args(%b = %y0) -> (f32) {
      %v = memref.load %x[%q] : memref<5xf32>
      %n = arith.addf %b, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
