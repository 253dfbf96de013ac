// RUN: ditto-opt -p keep-gathered %s | FileCheck %s
// RUN: ditto-opt -p keep-gathered,keep-gathered %s | FileCheck %s
// RUN: sparseditto compile %S/../../examples/spmm.mlir -o %t --size K=8 --plan 'set-encoding,accumulate-registers,keep-gathered,vectorize{width=4},rows-to-subgroups{lanes=2 share=columns},map-blocks' --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=S4
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx
// RUN: sparseditto compile %S/../../examples/spmm.mlir -o %t --target sm_75 --size K=8 --plan 'set-encoding,accumulate-registers,keep-gathered,rows-to-threads,map-blocks'
// RUN: FileCheck %s --check-prefixes=SM75,OLD < %t/kernel.ptx
// RUN: sparseditto compile %S/../../examples/spmm.mlir -o %t --target sm_80 --size K=8 --plan 'set-encoding,accumulate-registers,keep-gathered,rows-to-threads,map-blocks'
// RUN: FileCheck %s --check-prefixes=SM80,OLD < %t/kernel.ptx

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// What entries gather from is marked; the arrays of the matrix, the row's own factor and the output are not.
// CHECK: func.func @scaled(%arg0: tensor<{{.*}}> {ditto.name = "A"}, %arg1: memref<?xf32> {ditto.keep}, %arg2: memref<?xf32>, %arg3: memref<?xf32>)
func.func @scaled(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %d: memref<?xf32>, %y: memref<?xf32>) {
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
    %f = memref.load %d[%i] : memref<?xf32>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%j] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    %g = arith.mulf %f, %s : f32
    memref.store %g, %y[%i] : memref<?xf32>
  }
  return
}

// A kernel says it by the number of the argument.
// S4: gpu.func @spmm({{.*}}ditto.name = "B"{{.*}}) kernel attributes {{{.*}}ditto.keep = array<i32: 3>

// PTX:     createpolicy.fractional.L2::evict_last.b64 [[POLICY:%rd[0-9]+]], 1.0;
// PTX:     ld.global.nc.L2::cache_hint.v4.f32 {{{.*}}}, [{{.*}}], [[POLICY]];
// PTX-NOT: createpolicy

// The PTX that LLVM writes for these has no cache policies.
// SM75:    .target sm_75
// SM80:    .target sm_80
// OLD-NOT: cache_hint
// OLD:     ret;
