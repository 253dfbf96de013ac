// RUN: ditto-opt -p 'partition{by=length limit=64},canonicalize,cse' %s | FileCheck %s --check-prefix=LENGTH
// RUN: ditto-opt -p 'partition{by=column limit=1000},canonicalize,cse' %s | FileCheck %s --check-prefix=COLUMN
// RUN: ditto-opt -p 'partition{by=diagonal limit=80},partition{by=length limit=8},canonicalize,cse' %s | FileCheck %s --check-prefix=TWICE

// Each row is in one part, which does with it what was done before; the second part waits.
// LENGTH-LABEL: func.func @spmv(
// LENGTH-SAME:    %[[Y:[a-z0-9]*]]: memref<?xf32>, %[[ROWS0:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.part0.rows", ditto.recipe = "partition{level=1 by=length limit=64 part=0}"},
// LENGTH-SAME:    %[[ROWS1:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.part1.rows", ditto.recipe = "partition{level=1 by=length limit=64 part=1}"},
// LENGTH-NOT:     sparse_tensor
// LENGTH:         %[[COUNT0:.*]] = memref.dim %[[ROWS0]], %c0
// LENGTH-NEXT:    scf.for %[[SLOT0:.*]] = %c0 to %[[COUNT0]] step %c1 {
// LENGTH-NEXT:      %[[R0:.*]] = memref.load %[[ROWS0]][%[[SLOT0]]]
// LENGTH-NEXT:      %[[I0:.*]] = arith.index_castui %[[R0]]
// LENGTH:           %[[START0:.*]] = memref.load %[[Y]][%[[I0]]]
// LENGTH:           scf.for {{.*}} iter_args(%{{.*}} = %[[START0]])
// LENGTH:         %[[COUNT1:.*]] = memref.dim %[[ROWS1]], %c0
// LENGTH-NEXT:    scf.for %[[SLOT1:.*]] = %c0 to %[[COUNT1]] step %c1 {
// LENGTH-NEXT:      %[[R1:.*]] = memref.load %[[ROWS1]][%[[SLOT1]]]
// LENGTH-NEXT:      %[[I1:.*]] = arith.index_castui %[[R1]]
// LENGTH:           %[[START1:.*]] = memref.load %[[Y]][%[[I1]]]
// LENGTH:           %[[S1:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[START1]])
// LENGTH:           memref.store %[[S1]], %[[Y]][%[[I1]]]
// LENGTH-NEXT:    } {ditto.waiting}

// A row has entries in both parts: the first walks all rows, and the second adds to what it has stored.
// COLUMN-LABEL: func.func @spmv(
// COLUMN-SAME:    %[[Y:[a-z0-9]*]]: memref<?xf32>, %{{[a-z0-9]*}}: memref<?xindex> {ditto.name = "A.part0.positions"
// COLUMN-SAME:    %[[ROWS1:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.part1.rows"
// COLUMN:         %[[M:.*]] = sparse_tensor.lvl
// COLUMN:         scf.for %[[I0:.*]] = %c0 to %[[M]] step %c1 {
// COLUMN:           memref.store %{{.*}}, %[[Y]][%[[I0]]]
// COLUMN-NEXT:    }
// COLUMN:         scf.for
// COLUMN:           %[[I1:.*]] = arith.index_castui
// COLUMN:           %[[S1:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %cst) -> (f32) {
// COLUMN:           %[[OLD:.*]] = memref.load %[[Y]][%[[I1]]]
// COLUMN-NEXT:      %[[NEW:.*]] = arith.addf %[[OLD]], %[[S1]]
// COLUMN-NEXT:      memref.store %[[NEW]], %[[Y]][%[[I1]]]
// COLUMN-NEXT:    } {ditto.waiting}

// A part can be split again: the recipes are one after the other, and so are the names.
// TWICE-LABEL: func.func @spmv(
// TWICE-SAME:    ditto.name = "A.part0.part0.rows", ditto.recipe = "partition{level=1 by=diagonal limit=80 part=0}|partition{level=1 by=length limit=8 part=0}"
// TWICE-SAME:    ditto.name = "A.part0.part1.rows"
// TWICE:         scf.for
// TWICE:         } {ditto.waiting}
// TWICE:         } {ditto.waiting}
// TWICE-NOT:     ditto.waiting
#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

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
