// RUN: ditto-opt -p 'tile-columns{width=16},canonicalize,cse' --split-input-file %s | FileCheck %s
// RUN: ditto-opt -p 'tile-columns{width=16},vectorize{width=4},canonicalize,cse' --split-input-file %s | FileCheck %s --check-prefix=VECTORS
// RUN: ditto-opt -p 'tile-columns{width=16},vectorize{width=4},jam-columns{factor=2},canonicalize,cse' --split-input-file %s | FileCheck %s --check-prefix=JAMMED
// RUN: ditto-opt -p 'segment-rows{length=64},tile-columns{width=16},vectorize{width=4},rows-to-subgroups{lanes=4},map-blocks,canonicalize,cse' --split-input-file %s | FileCheck %s --check-prefix=SEGMENTS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Four tiles of 16 columns: 4 m iterations, tile after tile.  Which tile and which row it is, two comparisons find.
// CHECK-LABEL: func.func @divided
// CHECK:         %[[M:.*]] = sparse_tensor.lvl %arg0
// CHECK:         %[[ALL:.*]] = arith.muli %[[M]], %c4
// CHECK-NEXT:    scf.for %[[T:.*]] = %c0 to %[[ALL]] step %c1 {
// CHECK-NEXT:      %[[TWO:.*]] = arith.muli %[[M]], %c2
// CHECK-NEXT:      %[[LATER:.*]] = arith.cmpi uge, %[[T]], %[[TWO]]
// CHECK-NEXT:      %[[FIRST2:.*]] = arith.select %[[LATER]], %c32, %c0
// CHECK-NEXT:      %[[LEFT2:.*]] = arith.subi %[[T]], %[[TWO]]
// CHECK-NEXT:      %[[ROW2:.*]] = arith.select %[[LATER]], %[[LEFT2]], %[[T]]
// CHECK-NEXT:      %[[NEXT:.*]] = arith.cmpi uge, %[[ROW2]], %[[M]]
// CHECK-NEXT:      %[[FIRST1:.*]] = arith.select %[[NEXT]], %c16, %c0
// CHECK-NEXT:      %[[FIRST:.*]] = arith.addi %[[FIRST1]], %[[FIRST2]]
// CHECK-NEXT:      %[[LEFT:.*]] = arith.subi %[[ROW2]], %[[M]]
// CHECK-NEXT:      %[[I:.*]] = arith.select %[[NEXT]], %[[LEFT]], %[[ROW2]]
// CHECK-NEXT:      memref.load %{{.*}}[%[[I]]] : memref<?xindex>
// CHECK-NEXT:      %[[I1:.*]] = arith.addi %[[I]], %c1
// CHECK-NEXT:      memref.load %{{.*}}[%[[I1]]] : memref<?xindex>
// CHECK-NEXT:      scf.for %[[K:.*]] = %c0 to %c16 step %c1 {
// CHECK-NEXT:        %[[COLUMN:.*]] = arith.addi %[[FIRST]], %[[K]]
// CHECK-NEXT:        %[[S:.*]] = scf.for
// CHECK:               memref.load %arg1[%{{.*}}, %[[COLUMN]]] : memref<?x64xf32>
// CHECK:             memref.store %[[S]], %arg2[%[[I]], %[[COLUMN]]] : memref<?x64xf32>

// A tile begins with a whole number of vectors: they are aligned.
// VECTORS-LABEL: func.func @divided
// VECTORS:         scf.for %[[K:.*]] = %c0 to %c16 step %c4 {
// VECTORS-NEXT:      %[[COLUMN:.*]] = arith.addi %{{.*}}, %[[K]] : index
// VECTORS:             vector.load %arg1[%{{.*}}, %[[COLUMN]]] {alignment = 16 : i64} : memref<?x64xf32>, vector<4xf32>
// VECTORS:           vector.store %{{.*}}, %arg2[%{{.*}}, %[[COLUMN]]] {alignment = 16 : i64} : memref<?x64xf32>, vector<4xf32>

// A tile can be jammed: its halves lie 8 columns apart.
// JAMMED-LABEL: func.func @divided
// JAMMED:         scf.for %[[K:.*]] = %c0 to %c8 step %c4 {
// JAMMED-NEXT:      %[[K1:.*]] = arith.addi %[[K]], %c8
// JAMMED-NEXT:      %[[COLUMN:.*]] = arith.addi %[[FIRST:.*]], %[[K]] : index
// JAMMED-NEXT:      %[[COLUMN1:.*]] = arith.addi %[[FIRST]], %[[K1]] : index
// JAMMED:             vector.load %arg1[%[[J:.*]], %[[COLUMN]]]
// JAMMED-NEXT:        vector.load %arg1[%[[J]], %[[COLUMN1]]]

// Segments are walked once for each tile; the kernel that sets cut rows first has all columns.
// SEGMENTS-LABEL: func.func @divided
// SEGMENTS:         %[[CUT:.*]] = memref.dim %{{.*}}, %c0
// SEGMENTS:         arith.muli %[[CUT]], %c64
// SEGMENTS:         {ditto.kernel = "_init", mapping = [#gpu.block<linear_dim_0>]}
// SEGMENTS:         %[[COUNT:.*]] = memref.dim %{{.*}}, %c0
// SEGMENTS:         %[[ALL:.*]] = arith.muli %[[COUNT]], %c4
// SEGMENTS:         %[[INSIDE:.*]] = arith.cmpi ult, %[[T:.*]], %[[ALL]]
// SEGMENTS:         scf.if %[[INSIDE]] {
// SEGMENTS:           %[[LEFT:.*]] = arith.subi %{{.*}}, %[[COUNT]] : index
// SEGMENTS-NEXT:      %[[G:.*]] = arith.select %{{.*}}, %[[LEFT]], %{{.*}} : index
// SEGMENTS:           memref.load %{{.*}}[%[[G]]] : memref<?xi32>
func.func @divided(%A: tensor<?x?xf32, #CSR>, %B: memref<?x64xf32>, %C: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x64xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x64xf32>
    }
  }
  return
}

// -----

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// 28 columns: the second tile begins with column 12, and stores from its fifth column on.  The old value, from which the sum
// would start, is added after it, and only there.
// CHECK-LABEL: func.func @narrower
// CHECK:         %[[FIRST:.*]] = arith.select %{{.*}}, %c16, %c0
// CHECK-NEXT:    %[[START:.*]] = arith.minui %[[FIRST]], %c12
// CHECK-NEXT:    %[[SHARED:.*]] = arith.subi %[[FIRST]], %[[START]]
// CHECK:         scf.for %[[K:.*]] = %c0 to %c16 step %c1 {
// CHECK-NEXT:      %[[OWN:.*]] = arith.cmpi uge, %[[K]], %[[SHARED]]
// CHECK-NEXT:      %[[COLUMN:.*]] = arith.addi %[[START]], %[[K]]
// CHECK-NEXT:      %[[S:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %cst)
// CHECK:           scf.if %[[OWN]] {
// CHECK-NEXT:        %[[OLD:.*]] = memref.load %arg2[%[[I:.*]], %[[COLUMN]]] : memref<?x28xf32>
// CHECK-NEXT:        %[[NEW:.*]] = arith.addf %[[OLD]], %[[S]]
// CHECK-NEXT:        memref.store %[[NEW]], %arg2[%[[I]], %[[COLUMN]]] : memref<?x28xf32>
// CHECK-NEXT:      }

// Columns 12 and 16 begin vectors: a vector is stored or it is not.
// VECTORS-LABEL: func.func @narrower
// VECTORS:         scf.for %[[K:.*]] = %c0 to %c16 step %c4 {
// VECTORS-NEXT:      %[[OWN:.*]] = arith.cmpi uge, %[[K]], %{{.*}} : index
// VECTORS:           scf.if %[[OWN]] {
// VECTORS-NEXT:        vector.load %arg2[%{{.*}}] {alignment = 16 : i64} : memref<?x28xf32>, vector<4xf32>
// VECTORS-NEXT:        arith.addf %{{.*}} : vector<4xf32>
// VECTORS-NEXT:        vector.store

// Each jammed column has its own condition.
// JAMMED-LABEL: func.func @narrower
// JAMMED:         %[[SHARED:.*]] = arith.subi
// JAMMED:         scf.for %[[K:.*]] = %c0 to %c8 step %c4 {
// JAMMED-NEXT:      %[[K1:.*]] = arith.addi %[[K]], %c8 : index
// JAMMED-NEXT:      arith.cmpi uge, %[[K]], %[[SHARED]] : index
// JAMMED-NEXT:      arith.cmpi uge, %[[K1]], %[[SHARED]] : index
// JAMMED-COUNT-2: scf.if
// JAMMED-NOT:     scf.if

// SEGMENTS-LABEL: func.func @narrower
func.func @narrower(%A: tensor<?x?xf32, #CSR>, %B: memref<?x28xf32>, %C: memref<?x28xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 28 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %old = memref.load %C[%i, %k] : memref<?x28xf32>
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %old) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x28xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x28xf32>
    }
  }
  return
}
