// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=128},bound-launch{blocks=8}' %s | FileCheck %s --check-prefix=BLOCKS
// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=128},bound-launch{registers=40}' %s | FileCheck %s --check-prefix=REGISTERS
// RUN: sparseditto compile %S/../../examples/spmv.mlir -o %t --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks{threads=128},bound-launch{blocks=8}'
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx

// The loop over blocks carries the bound, the kernel and its PTX too.
// BLOCKS:    } {mapping = [#gpu.block<linear_dim_0>], nvvm.minctasm = 8 : i32}
// REGISTERS: } {mapping = [#gpu.block<linear_dim_0>], nvvm.maxnreg = 40 : i32}
// PTX:       .visible .entry spmv(
// PTX:       .{{maxntid|reqntid}} 128
// PTX:       .minnctapersm 8
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %n: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %n, %c0 : memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
