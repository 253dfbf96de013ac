// RUN: ditto-opt -p 'unroll{factor=4 tail=halves},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-subgroups{lanes=8 share=entries},unroll{factor=4 tail=halves},canonicalize,cse' %s | FileCheck %s --check-prefix=LANES
// RUN: not ditto-opt -p 'unroll{tail=halves},unroll' %s 2>&1 | FileCheck %s --check-prefix=TWICE

// TWICE: ditto-opt: not-applicable: unroll: does not go with the innermost reduction unrolled

// Whole groups of four in a loop; then two of what is left where there are two, then one where there is one.  Each loads
// what it needs together, and nothing twice; the order of the sums is as it was.
// CHECK-LABEL: func.func @dot
// CHECK:         %[[Y0:.*]] = memref.load %arg1[%arg4]
// CHECK:         %[[SPAN:.*]] = arith.maxsi %arg3, %c0
// CHECK-NEXT:    %[[GROUPS:.*]] = arith.divui %[[SPAN]], %c4
// CHECK-NEXT:    %[[WHOLE:.*]] = arith.muli %[[GROUPS]], %c4
// CHECK-NEXT:    %[[MAIN:.*]] = scf.for %{{.*}} = %c0 to %[[WHOLE]] step %c4 iter_args(%{{.*}} = %[[Y0]]) -> (f32) {
// CHECK-COUNT-4:   memref.load %arg0
// CHECK-COUNT-4:   arith.addf
// CHECK:         } {ditto.unrolled}
// CHECK-NEXT:    %[[REST:.*]] = arith.subi %arg3, %[[WHOLE]]
// CHECK-NEXT:    %[[LEFT:.*]] = arith.maxsi %[[REST]], %c0
// CHECK-NEXT:    %[[TWO:.*]] = arith.cmpi sge, %[[LEFT]], %c2
// CHECK-NEXT:    %[[S2:.*]] = scf.if %[[TWO]] -> (f32) {
// CHECK-NEXT:      memref.load %arg0[%[[WHOLE]]]
// CHECK-NEXT:      %[[P1:.*]] = arith.addi %[[WHOLE]], %c1
// CHECK-NEXT:      memref.load %arg0[%[[P1]]]
// CHECK-NEXT:      arith.addf %[[MAIN]]
// CHECK-NEXT:      arith.addf
// CHECK-NEXT:      scf.yield
// CHECK-NEXT:    } else {
// CHECK-NEXT:      scf.yield %[[MAIN]]
// CHECK-NEXT:    }
// CHECK-NEXT:    %[[AFTER:.*]] = arith.addi %[[WHOLE]], %c2
// CHECK-NEXT:    %[[P:.*]] = arith.select %[[TWO]], %[[AFTER]], %[[WHOLE]]
// CHECK-NEXT:    %[[LESS:.*]] = arith.subi %[[LEFT]], %c2
// CHECK-NEXT:    %[[L:.*]] = arith.select %[[TWO]], %[[LESS]], %[[LEFT]]
// CHECK-NEXT:    %[[ONE:.*]] = arith.cmpi sge, %[[L]], %c1
// CHECK-NEXT:    %[[S1:.*]] = scf.if %[[ONE]] -> (f32) {
// CHECK-NEXT:      %[[V:.*]] = memref.load %arg0[%[[P]]]
// CHECK-NEXT:      %[[N:.*]] = arith.addf %[[S2]], %[[V]]
// CHECK-NEXT:      scf.yield %[[N]]
// CHECK-NEXT:    } else {
// CHECK-NEXT:      scf.yield %[[S2]]
// CHECK-NEXT:    }
// CHECK-NEXT:    memref.store %[[S1]], %arg1[%arg4]

// A lane has as many as steps of 8 fit into what is left, and its two lie 8 apart.
// LANES-LABEL: func.func @dot
// LANES:         scf.for %{{.*}} = %[[LANE:.*]] to %[[MIDDLE:.*]] step %c32
// LANES:         %[[REST:.*]] = arith.subi %arg3, %[[MIDDLE]]
// LANES-NEXT:    %[[SOME:.*]] = arith.maxsi %[[REST]], %c0
// LANES-NEXT:    %[[LEFT:.*]] = arith.ceildivui %[[SOME]], %c8
// LANES-NEXT:    %[[TWO:.*]] = arith.cmpi sge, %[[LEFT]], %c2
// LANES-NEXT:    scf.if %[[TWO]]
// LANES:           arith.addi %[[MIDDLE]], %c8
// LANES:         arith.addi %[[MIDDLE]], %c16
// LANES:         "ditto.lane_reduce"
func.func @dot(%x: memref<?xf32>, %y: memref<?xf32>, %rows: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %rows step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %c0 to %n step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %x[%p] : memref<?xf32>
      %t = arith.addf %a, %v : f32
      scf.yield %t : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// The factor divides a constant number of iterations: nothing is left over.
// CHECK-LABEL: func.func @eight
// CHECK:         scf.for %{{.*}} = %c0 to %c8 step %c4
// CHECK:         } {ditto.unrolled}
// CHECK-NEXT:    memref.store
func.func @eight(%x: memref<8xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %m step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %q = %c0 to %c8 step %c1 iter_args(%b = %y0) -> (f32) {
      %v = memref.load %x[%q] : memref<8xf32>
      %n = arith.addf %b, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// Of eleven, three are left over: all of that is known, and no question is asked.
// CHECK-LABEL: func.func @eleven
// CHECK:         scf.for
// CHECK:         } {ditto.unrolled}
// CHECK-NOT:     scf.if
// CHECK:         memref.load %arg0[%c8]
// CHECK:         memref.load %arg0[%c9]
// CHECK:         memref.load %arg0[%c10]
// CHECK-NOT:     memref.load
// CHECK:         memref.store
func.func @eleven(%x: memref<11xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c11 = arith.constant 11 : index
  scf.for %i = %c0 to %m step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %q = %c0 to %c11 step %c1 iter_args(%b = %y0) -> (f32) {
      %v = memref.load %x[%q] : memref<11xf32>
      %n = arith.addf %b, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
