// RUN: not ditto-opt -p outline-kernels --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'outline-kernel' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'outline-kernels{name=k}' %s 2>&1 | FileCheck %s --check-prefix=OPTION

// TYPO:   ditto-opt: bad-plan: no pass is named 'outline-kernel'; did you mean 'outline-kernels'?
// OPTION: ditto-opt: bad-plan: outline-kernels: no option 'name'; it has none

// CHECK: ditto-opt: not-applicable: outline-kernels: the nest is not mapped to blocks of threads; add map-blocks
func.func @threads_only(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %m = memref.dim %x, %c0 : memref<?xf32>
  scf.forall (%i) in (%m) {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  } {mapping = [#gpu.thread<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: not-applicable: outline-kernels: the nest is not mapped to blocks of threads; add map-blocks
func.func @blocks_only(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %m = memref.dim %x, %c0 : memref<?xf32>
  scf.forall (%i) in (%m) {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: not-applicable: outline-kernels: the output's fill is left; lower-fill makes a kernel of it
func.func @fill(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<?xf32>)
  %m = memref.dim %x, %c0 : memref<?xf32>
  scf.forall (%b) in (%m) {
    scf.forall (%t) in (32) {
      %v = memref.load %x[%b] : memref<?xf32>
      memref.store %v, %y[%b] : memref<?xf32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: unsupported: outline-kernels: an index argument of the function is not supported
func.func @index_argument(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  scf.forall (%b) in (%m) {
    scf.forall (%t) in (32) {
      %v = memref.load %x[%b] : memref<?xf32>
      memref.store %v, %y[%b] : memref<?xf32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: unsupported: outline-kernels: the kernel reads an argument of type {{.*}}; scalars are f32 or f64
func.func @scalar_argument(%a: i32, %y: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %m = memref.dim %y, %c0 : memref<?xi32>
  scf.forall (%b) in (%m) {
    scf.forall (%t) in (32) {
      memref.store %a, %y[%b] : memref<?xi32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: unsupported: outline-kernels: 'memref.load' cannot be computed before the launch
func.func @grid_from_data(%n: memref<?xindex>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = memref.load %n[%c0] : memref<?xindex>
  scf.forall (%b) in (%m) {
    scf.forall (%t) in (32) {
      memref.store %zero, %y[%b] : memref<?xf32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: unsupported: outline-kernels: a buffer made by 'memref.alloc' cannot be passed to a kernel
func.func @local_buffer(%y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %x = memref.alloc() : memref<8xf32>
  %m = memref.dim %y, %c0 : memref<?xf32>
  scf.forall (%b) in (%m) {
    scf.forall (%t) in (32) {
      %v = memref.load %x[%t] : memref<8xf32>
      memref.store %v, %y[%b] : memref<?xf32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: unsupported: outline-kernels: a sparse tensor that is no argument cannot be passed to a kernel
#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>
func.func @local_tensor(%D: tensor<8x8xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %A = sparse_tensor.convert %D : tensor<8x8xf32> to tensor<8x8xf32, #CSR>
  %val = sparse_tensor.values %A : tensor<8x8xf32, #CSR> to memref<?xf32>
  %m = memref.dim %y, %c0 : memref<?xf32>
  scf.forall (%b) in (%m) {
    scf.forall (%t) in (32) {
      %v = memref.load %val[%t] : memref<?xf32>
      memref.store %v, %y[%b] : memref<?xf32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: unsupported: outline-kernels: 'memref.load' between blocks and threads
func.func @between(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %m = memref.dim %x, %c0 : memref<?xf32>
  scf.forall (%b) in (%m) {
    %v = memref.load %x[%b] : memref<?xf32>
    scf.forall (%t) in (32) {
      memref.store %v, %y[%b] : memref<?xf32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// -----

// CHECK: ditto-opt: not-applicable: outline-kernels: there is no function with a body
module {}
