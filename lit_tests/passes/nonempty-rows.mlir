// RUN: ditto-opt -p 'nonempty-rows{share=8},canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'nonempty-rows,rows-to-subgroups{lanes=4},map-blocks,outline-kernels,canonicalize,cse' %s | FileCheck %s --check-prefix=KERNEL
// RUN: not ditto-opt -p 'nonempty-rows,nonempty-rows' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'nonempty-rows,segment-rows' %s 2>&1 | FileCheck %s --check-prefix=SEGMENTS

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>

// The host lists the rows that have entries, and where those start.
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<?xf32>, %[[Y:[a-z0-9]*]]: memref<?xf32>,
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.listed_rows.rows", ditto.recipe = "listed-rows{level=1 share=8}"},
// CHECK-SAME:    %[[POS:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.listed_rows.positions", ditto.part = "positions", ditto.recipe = "listed-rows{{[^"]*}}"},
// CHECK-SAME:    %[[EMPTY:[a-z0-9]*]]: memref<?xi32> {ditto.name = "A.listed_rows.empty", ditto.recipe = "listed-rows{{[^"]*}}"})
// CHECK-NOT:     sparse_tensor.positions
// CHECK:         %[[LISTED:.*]] = memref.dim %[[ROWS]], %c0
// CHECK-NEXT:    scf.for %[[G:.*]] = %c0 to %[[LISTED]] step %c1 {
// CHECK-NEXT:      %[[R:.*]] = memref.load %[[ROWS]][%[[G]]]
// CHECK-NEXT:      %[[I:.*]] = arith.index_castui %[[R]]
// CHECK:           %[[P0:.*]] = memref.load %[[POS]][%[[G]]]
// CHECK:           %[[SUM:.*]] = scf.for
// CHECK:           memref.store %[[SUM]], %[[Y]][%[[I]]]

// The other rows are stored side by side, by as many threads as there are listed rows.
// CHECK-NEXT:      scf.for %[[O:.*]] = %[[G]] to %{{.*}} step %[[LISTED]] {
// CHECK-NEXT:        %[[WORD:.*]] = arith.divui %[[O]], %c32
// CHECK-NEXT:        %[[FLAGS:.*]] = memref.load %[[EMPTY]][%[[WORD]]]
// CHECK-NEXT:        %[[PLACE:.*]] = arith.remui %[[O]], %c32
// CHECK:             %[[BIT:.*]] = arith.andi
// CHECK-NEXT:        %[[NONE:.*]] = arith.cmpi ne, %[[BIT]], %c0_i32
// CHECK-NEXT:        scf.if %[[NONE]] {
// CHECK-NEXT:          memref.store %cst, %[[Y]][%[[O]]]
// CHECK-NEXT:        }
// CHECK-NEXT:      } {ditto.walks = "empty rows"}

// Where rows keep what they hold, those without entries are left alone.
// CHECK-LABEL: func.func @update(
// CHECK-NOT:     A.listed_rows.empty
// CHECK:         scf.for
// CHECK:           memref.store
// CHECK-NOT:       ditto.walks

// One launch does all.
// KERNEL:      gpu.func @spmv(
// KERNEL-SAME:   ditto.grid = ["ceildiv(A.listed_rows.rows.dim0, 32)", "1", "1"]
// KERNEL:      gpu.func @update(
// KERNEL-NOT:  gpu.func

// What a later pass says of it.
// TWICE:    ditto-opt: not-applicable: nonempty-rows: does not go with a list of the rows that have entries
// SEGMENTS: ditto-opt: not-applicable: segment-rows: does not go with a list of the rows that have entries
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %p0 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %p0 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %p1 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %p1 : i32 to index
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
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

func.func @update(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %p0 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %p0 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %p1 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %p1 : i32 to index
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
