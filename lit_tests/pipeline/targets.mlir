// The chip that is asked for is the one in the PTX, and the passes' order is the plan's.
// RUN: sparseditto compile %s -o %t --target sm_80 --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks{threads=64}' && FileCheck %s --check-prefix=SM80 < %t/kernel.ptx
// RUN: sparseditto compile %s -o %t --target sm_120 --plan 'set-encoding,accumulate-registers,rows-to-subgroups{lanes=32},map-blocks{threads=1024}' && FileCheck %s --check-prefix=SM120 < %t/kernel.ptx

// SM80: .version 7.0
// SM80: .target sm_80
// SM80: .{{maxntid|reqntid}} 64

// All five steps of a whole warp's reduction name the whole warp.
// SM120:         .target sm_120
// SM120:         .{{maxntid|reqntid}} 1024
// SM120-COUNT-5: shfl.sync.bfly.b32 {{.*}}, 31, -1;
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
