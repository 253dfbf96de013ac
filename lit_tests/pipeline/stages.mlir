// One compilation, printed after each stage.
// DEFINE: %{compile} = sparseditto compile %s -o %t --size K=64 --plan 'set-encoding,accumulate-registers,vectorize{width=4},jam-columns{factor=2},rows-to-subgroups{lanes=8 share=columns},unroll{factor=4},map-blocks{threads=256}'
// RUN: %{compile} --print-ir-after=S0 --print-ir-after=S1 2>&1 | FileCheck %s --check-prefixes=S0,S1
// RUN: %{compile} --print-ir-after=S2 2>&1 | FileCheck %s --check-prefix=S2
// RUN: %{compile} --print-ir-after=S3 2>&1 | FileCheck %s --check-prefix=S3
// RUN: %{compile} --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=S4
// RUN: rm -rf %t.ir
// RUN: %{compile} --dump-ir %t.ir | FileCheck %s --check-prefix=SAYS
// RUN: FileCheck %s --check-prefix=S5 < %t.ir/S5.ptx
// RUN: diff %t/kernel.ptx %t.ir/S5.ptx
// RUN: ls %t.ir | FileCheck %s --check-prefix=FILES
// RUN: ditto-opt -p 'lower-fill,outline-kernels,lower-collectives,fuse-multiply-add,canonicalize,cse' %t.ir/S3.mlir | diff - %t.ir/S4.mlir

// Stage 0: as written, with names on the arguments and the known size.
// S0:       IR after S0
// S0:       func.func @spmm(%{{.*}}: tensor<?x?xf32> {ditto.name = "A", ditto.sparse}, %{{.*}}: tensor<?x64xf32> {ditto.name = "B"}) -> tensor<?x64xf32>
// S0:       linalg.matmul

// Stage 1: the encoding is chosen.
// S1:       IR after S1
// S1:       #[[CSR:.*]] = #sparse_tensor.encoding<{ map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 32 }>
// S1:       func.func @spmm(%[[A:.*]]: tensor<?x?xf32, #[[CSR]]> {ditto.name = "A"}
// S1:       linalg.matmul ins(%[[A]], %{{.*}} : tensor<?x?xf32, #[[CSR]]>, tensor<?x64xf32>)

// Stage 2: a nest of loops over positions and coordinates; the output is an argument.
// S2:       IR after S2
// S2:       func.func @spmm({{.*}}, %[[C:.*]]: memref<?x64xf32> {ditto.name = "result"}) {
// S2:         linalg.fill ins(%cst : f32) outs(%[[C]] : memref<?x64xf32>)
// S2:         scf.for
// S2:           scf.for
// S2:             scf.for %{{.*}} = %c0 to %c64 step %c1 {
// S2:               memref.store %{{.*}}, %[[C]]

// Stage 3: mapped to blocks and threads, in registers and vectors.
// S3:       IR after S3
// S3-NOT:   linalg.fill
// S3:       scf.forall (%{{.*}}) in (%{{.*}}) {
// S3:         scf.forall (%{{.*}}) in (256) {
// S3:           scf.for {{.*}} -> (vector<4xf32>, vector<4xf32>) {
// S3-COUNT-8:     vector.load
// S3:           } {ditto.unrolled}
// S3:           vector.store
// S3:         } {mapping = [#gpu.thread<linear_dim_0>]}
// S3:       } {mapping = [#gpu.block<linear_dim_0>]}

// Stage 4: a kernel; no ditto op is left, only what the launch must know.
// S4:       IR after S4
// S4:       gpu.func @spmm(
// S4-SAME:    kernel attributes {ditto.grid = ["ceildiv(A.lvl0, 32)", "1", "1"], known_block_size = array<i32: 256, 1, 1>}
// S4-NOT:   scf.forall
// S4-NOT:   "ditto.
// S4:       math.fma %{{.*}} : vector<4xf32>
// S4:       gpu.return

// Stage 5: PTX.  Read-only operands go through the read-only path, 128 bits at a time where neighbours are read.
// S5:       .target sm_90
// S5:       .visible .entry spmm(
// S5-COUNT-5: .param .u64 .ptr .global .align 16
// S5:       .{{maxntid|reqntid}} 256
// S5:       ld.global.nc.v4.{{b32|f32}}
// S5:       fma.rn.f32
// S5-NOT:   ld.global.{{[bf]}}
// S5:       st.global.v4.{{b32|f32}}

// SAYS:      kernel: spmm (linalg.matmul) for sm_90
// SAYS-NEXT: plan: set-encoding{{.*}},accumulate-registers,vectorize{width=4},jam-columns{factor=2},{{.*}}map-blocks{threads=256} [{{[0-9a-f]+}}]
// SAYS-NEXT: launch: spmm, grid ceildiv(A.lvl0, 32), block 256
// SAYS:      PTX: {{.*}}kernel.ptx

// FILES:      S0.mlir
// FILES-NEXT: S1.mlir
// FILES-NEXT: S2.mlir
// FILES-NEXT: S3.mlir
// FILES-NEXT: S4.mlir
// FILES-NEXT: S5.ptx
func.func @spmm(%A: tensor<?x?xf32> {ditto.sparse}, %B: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf32>
  %k = tensor.dim %B, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %k) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %C = linalg.matmul ins(%A, %B : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %C : tensor<?x?xf32>
}
