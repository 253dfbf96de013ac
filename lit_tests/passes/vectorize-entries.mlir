// RUN: ditto-opt -p 'vectorize-entries{width=2},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'vectorize-entries{width=8},canonicalize,cse' %s | FileCheck %s --check-prefix=WIDE
// RUN: ditto-opt -p 'vectorize-entries{width=4},rows-to-subgroups{lanes=8 share=entries},canonicalize,cse' %s | FileCheck %s --check-prefix=LANES

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// A row's walk starts at the multiple of 2 at or before its first entry; an empty row has no group, wherever it starts.
// CHECK-LABEL: func.func @spmv
// CHECK:         %[[LO:.*]] = memref.load %[[POS:[0-9a-z%]*]][%arg3]
// CHECK:         %[[HI:.*]] = memref.load %[[POS]]
// CHECK:         %[[Y0:.*]] = memref.load %arg2[%arg3]
// CHECK-NEXT:    %[[PAIR:.*]] = arith.divui %[[LO]], %c2
// CHECK-NEXT:    %[[FIRST:.*]] = arith.muli %[[PAIR]], %c2
// CHECK-NEXT:    %[[SOME:.*]] = arith.cmpi ult, %[[LO]], %[[HI]]
// CHECK-NEXT:    %[[END:.*]] = arith.select %[[SOME]], %[[HI]], %[[FIRST]]
// CHECK-NEXT:    %[[S:.*]] = scf.for %[[P:.*]] = %[[FIRST]] to %[[END]] step %c2 iter_args(%[[A:.*]] = %[[Y0]]) -> (f32) {

// The last group of the arrays may reach past their end: it is loaded entry by entry, the last one as often as it takes.
// CHECK:           %[[LENGTH:.*]] = memref.dim %[[CRD:.*]], %c0
// CHECK-NEXT:      %[[AFTER:.*]] = arith.addi %[[P]], %c2
// CHECK-NEXT:      %[[WHOLE:.*]] = arith.cmpi ule, %[[AFTER]], %[[LENGTH]]
// CHECK-NEXT:      %[[L:.*]]:2 = scf.if %[[WHOLE]] -> (vector<2xi32>, vector<2xf32>) {
// CHECK-NEXT:        %[[JS:.*]] = vector.load %[[CRD]][%[[P]]] {alignment = 8 : i64} : memref<?xi32>, vector<2xi32>
// CHECK-NEXT:        %[[VS:.*]] = vector.load %[[VAL:.*]][%[[P]]] {alignment = 8 : i64} : memref<?xf32>, vector<2xf32>
// CHECK-NEXT:        scf.yield %[[JS]], %[[VS]]
// CHECK-NEXT:      } else {
// CHECK-NEXT:        %[[LAST:.*]] = arith.subi %[[LENGTH]], %c1
// CHECK-NEXT:        %[[P0:.*]] = arith.minui %[[P]], %[[LAST]]
// CHECK-NEXT:        %[[NEXT:.*]] = arith.addi %[[P]], %c1
// CHECK-NEXT:        %[[P1:.*]] = arith.minui %[[NEXT]], %[[LAST]]
// CHECK-NEXT:        memref.load %[[CRD]][%[[P0]]]
// CHECK-NEXT:        memref.load %[[CRD]][%[[P1]]]
// CHECK-NEXT:        memref.load %[[VAL]][%[[P0]]]
// CHECK-NEXT:        memref.load %[[VAL]][%[[P1]]]

// Of a pair, the first may be the row's before, the second the row's after: neither is added, and both gather from column 0.
// CHECK:           %[[LEFT:.*]] = arith.subi %[[HI]], %[[P]]
// CHECK:           %[[BEFORE:.*]] = arith.subi %[[LO]], %[[P]]
// CHECK-NEXT:      arith.maxsi %[[BEFORE]], %c0
// CHECK:           %[[IN0:.*]] = arith.cmpi ule, %{{.*}}, %c0_i32
// CHECK-NEXT:      %[[IN1:.*]] = arith.cmpi ugt, %{{.*}}, %c1_i32
// CHECK-NEXT:      %[[E0:.*]] = vector.extract %[[L]]#0[0]
// CHECK-NEXT:      %[[J0:.*]] = arith.select %[[IN0]], %[[E0]], %c0_i32
// CHECK-NEXT:      %[[V0:.*]] = vector.extract %[[L]]#1[0]
// CHECK-NEXT:      %[[AT0:.*]] = arith.index_castui %[[J0]]
// CHECK-NEXT:      %[[X0:.*]] = memref.load %arg1[%[[AT0]]]
// CHECK-NEXT:      %[[T0:.*]] = arith.mulf %[[V0]], %[[X0]]
// CHECK-NEXT:      %[[E1:.*]] = vector.extract %[[L]]#0[1]
// CHECK-NEXT:      arith.select %[[IN1]], %[[E1]], %c0_i32
// CHECK:           %[[T1:.*]] = arith.mulf
// CHECK-NEXT:      %[[N0:.*]] = arith.addf %[[A]], %[[T0]]
// CHECK-NEXT:      %[[A0:.*]] = arith.select %[[IN0]], %[[N0]], %[[A]]
// CHECK-NEXT:      %[[N1:.*]] = arith.addf %[[A0]], %[[T1]]
// CHECK-NEXT:      %[[A1:.*]] = arith.select %[[IN1]], %[[N1]], %[[A0]]
// CHECK-NEXT:      scf.yield %[[A1]]
// CHECK-NEXT:    }
// CHECK-NEXT:    memref.store %[[S]]

// A load is aligned to what one instruction reads at most; entries in the middle of a group are asked both questions.
// WIDE-LABEL:   func.func @spmv
// WIDE:           vector.load %{{.*}} {alignment = 16 : i64} : memref<?xi32>, vector<8xi32>
// WIDE:           vector.load %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<8xf32>
// WIDE-COUNT-6:   arith.andi

// Lanes take groups in turn, each the eighth after its own.
// LANES-LABEL: func.func @spmv
// LANES:         scf.forall (%[[LANE:.*]]) in (8)
// LANES:         %[[OFFSET:.*]] = arith.muli %[[LANE]], %c4
// LANES-NEXT:    %[[FIRST:.*]] = arith.addi %{{.*}}, %[[OFFSET]]
// LANES:         scf.for %{{.*}} = %[[FIRST]] to %{{.*}} step %c32
// LANES:           vector.load
// LANES:         "ditto.lane_reduce"
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
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
