// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=64},outline-kernels,canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=64},outline-kernels,canonicalize,cse' --target sm_80 %s | FileCheck %s --check-prefix=SM80
// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=64},loop-invariant-code-motion' %s | FileCheck %s --check-prefix=HOISTED
// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=64},loop-invariant-code-motion,outline-kernels' %s | FileCheck %s --check-prefix=AGAIN

// What is computed between blocks and threads each thread computes.
// HOISTED-LABEL: func.func @spmv(
// HOISTED:       scf.forall (%[[B:.*]]) in
// HOISTED-NEXT:  arith.muli %[[B]], %c64
// HOISTED-NEXT:  scf.forall
// AGAIN-LABEL:   gpu.func @spmv(
// AGAIN:         %[[B:.*]] = gpu.block_id x
// AGAIN:         %[[FIRST:.*]] = arith.muli %[[B]], %c64
// AGAIN:         arith.addi %[[FIRST]], %thread_id_x
// AGAIN-NOT:     scf.forall
// AGAIN:         gpu.return

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 16}>
#DCSR = #sparse_tensor.encoding<{map = (i, j) -> (i : compressed, j : compressed), posWidth = 32, crdWidth = 32}>

// CHECK: module attributes {gpu.container_module} {
// CHECK: gpu.module @kernels [#nvvm.target<O = 3, chip = "sm_90", features = "+ptx78">] {
// SM80:  gpu.module @kernels [#nvvm.target<O = 3, chip = "sm_80", features = "+ptx70">] {

// Bare pointers come first: the parts of the sparse operand by level, then the operands as the function has them.  Each says
// its name and shape; what is only read is readonly; the sizes follow.  Indices keep their width.
// CHECK-LABEL: gpu.func @spmv(
// CHECK-SAME:    %[[POS:[a-z0-9]*]]: memref<1xi32, 1> {ditto.name = "A.positions1", ditto.shape = ["A.positions1.length"], llvm.align = 16 : i64, llvm.noalias, llvm.readonly}
// CHECK-SAME:    %[[CRD:[a-z0-9]*]]: memref<1xi16, 1> {ditto.name = "A.coordinates1", ditto.shape = ["A.coordinates1.length"], llvm.align = 16 : i64, llvm.noalias, llvm.readonly}
// CHECK-SAME:    %[[VAL:[a-z0-9]*]]: memref<1xf32, 1> {ditto.name = "A.values", ditto.shape = ["A.values.length"], llvm.align = 16 : i64, llvm.noalias, llvm.readonly}
// CHECK-SAME:    %[[X:[a-z0-9]*]]: memref<1xf32, 1> {ditto.name = "x", ditto.shape = ["x.dim0"], llvm.align = 16 : i64, llvm.noalias, llvm.readonly}
// CHECK-SAME:    %[[Y:[a-z0-9]*]]: memref<1xf32, 1> {ditto.access = "readwrite", ditto.name = "y", ditto.shape = ["y.dim0"], llvm.align = 16 : i64, llvm.noalias}
// CHECK-SAME:    %{{[a-z0-9]*}}: i64 {ditto.name = "A.positions1.length"}
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: i64 {ditto.name = "A.lvl0"}
// CHECK-SAME:    kernel attributes {ditto.grid = ["ceildiv(A.lvl0, 64)", "1", "1"], known_block_size = array<i32: 64, 1, 1>} {
// CHECK:         %[[M:.*]] = arith.index_cast %[[ROWS]] : i64 to index
// CHECK:         memref.reinterpret_cast %[[POS]] to offset: [0], sizes: [%{{.*}}], strides: [1] : memref<1xi32, 1> to memref<?xi32, 1>
// CHECK:         %[[B:.*]] = gpu.block_id x
// CHECK-NEXT:    %[[T:.*]] = gpu.thread_id x
// CHECK-NEXT:    %[[FIRST:.*]] = arith.muli %[[B]], %c64
// CHECK-NEXT:    %[[I:.*]] = arith.addi %[[FIRST]], %[[T]]
// CHECK-NEXT:    %[[INSIDE:.*]] = arith.cmpi ult, %[[I]], %[[M]]
// CHECK-NEXT:    scf.if %[[INSIDE]] {
// CHECK-NOT:     scf.forall
// CHECK:         gpu.return
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32> {ditto.name = "x"}, %y: memref<?xf32> {ditto.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi16>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  scf.for %i = %c0 to %m step %c1 {
    %lo32 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %lo32 : i32 to index
    %i1 = arith.addi %i, %c1 : index
    %hi32 = memref.load %pos[%i1] : memref<?xi32>
    %hi = arith.index_castui %hi32 : i32 to index
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j16 = memref.load %crd[%p] : memref<?xi16>
      %j = arith.index_castui %j16 : i16 to index
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

// Operands without a name are called by their place.  A static extent is a number; an output that is not read is written only.
// The strides of a dynamic matrix are computed in the kernel.
// CHECK-LABEL: gpu.func @dense(
// CHECK-SAME:    memref<1xf64, 1> {ditto.name = "arg0", ditto.shape = ["arg0.dim0", "8"], llvm.align = 16 : i64, llvm.noalias, llvm.readonly}
// CHECK-SAME:    memref<1xf64, 1> {ditto.access = "write", ditto.name = "arg1", ditto.shape = ["arg1.dim0", "arg1.dim1"], llvm.align = 16 : i64, llvm.noalias}
// CHECK-SAME:    %[[DIM1:[a-z0-9]*]]: i64 {ditto.name = "arg1.dim1"}
// CHECK-SAME:    kernel attributes {ditto.grid = ["ceildiv(arg0.dim0, 64)", "1", "1"]
// CHECK:         %[[STRIDE:.*]] = arith.index_cast %[[DIM1]]
// CHECK:         memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [%{{.*}}, 8], strides: [8, 1]
// CHECK:         memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [%{{.*}}, %[[STRIDE]]], strides: [%[[STRIDE]], 1]
func.func @dense(%B: memref<?x8xf64>, %C: memref<?x?xf64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %m = memref.dim %B, %c0 : memref<?x8xf64>
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c8 step %c1 {
      %b = memref.load %B[%i, %k] : memref<?x8xf64>
      memref.store %b, %C[%i, %k] : memref<?x?xf64>
    }
  }
  return
}

// DCSR's grid is made from the number of its stored rows; the parts come in the order of their levels.
// CHECK-LABEL: gpu.func @dcsr(
// CHECK-SAME:    ditto.name = "arg0.coordinates0"
// CHECK-SAME:    ditto.name = "arg0.positions1"
// CHECK-SAME:    ditto.name = "arg0.values"
// CHECK-SAME:    ditto.grid = ["ceildiv(arg0.coordinates0.length, 64)", "1", "1"]
func.func @dcsr(%A: tensor<?x?xf32, #DCSR>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %val = sparse_tensor.values %A : tensor<?x?xf32, #DCSR> to memref<?xf32>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #DCSR> to memref<?xi32>
  %rows = sparse_tensor.coordinates %A {level = 0 : index} : tensor<?x?xf32, #DCSR> to memref<?xi32>
  %m = memref.dim %rows, %c0 : memref<?xi32>
  scf.for %r = %c0 to %m step %c1 {
    %i32 = memref.load %rows[%r] : memref<?xi32>
    %i = arith.index_castui %i32 : i32 to index
    %lo32 = memref.load %pos[%r] : memref<?xi32>
    %lo = arith.index_castui %lo32 : i32 to index
    %v = memref.load %val[%lo] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}

// The functions are gone.
// CHECK-NOT: func.func
