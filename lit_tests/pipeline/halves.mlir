// Eight 16-bit operands are one load; products and sums are in f32, and the result is rounded once.
// RUN: rm -rf %t
// RUN: sparseditto compile %s --size K=64 --plan 'set-encoding,accumulate-registers,vectorize{width=8},rows-to-subgroups{lanes=8 share=columns},map-blocks' -o %t --dump-ir %t.ir
// RUN: FileCheck %s --input-file=%t.ir/S0.mlir --check-prefix=S0
// RUN: FileCheck %s --input-file=%t.ir/S2.mlir --check-prefix=S2
// RUN: FileCheck %s --input-file=%t/kernel.ptx --check-prefix=PTX

// S0:      %[[WIDE:.*]] = arith.extf %{{.*}} : tensor<?x64xbf16> to tensor<?x64xf32>
// S0:      %[[SUM:.*]] = linalg.generic {{.*}} outs(%[[WIDE]] : tensor<?x64xf32>)
// S0:        %[[A:.*]] = arith.extf %{{.*}} : bf16 to f32
// S0:        %[[B:.*]] = arith.extf %{{.*}} : bf16 to f32
// S0:        arith.mulf %[[A]], %[[B]] : f32
// S0:      arith.truncf %[[SUM]] : tensor<?x64xf32> to tensor<?x64xbf16>

// S2-NOT:  tensor<?x64
// S2:      memref.load %[[C:.*]][%{{.*}}] : memref<?x64xbf16>
// S2-NEXT: arith.extf
// S2:      arith.truncf
// S2-NEXT: memref.store %{{.*}}, %[[C]]

// PTX:     ld.global.nc.v4.b32
// PTX-COUNT-8: fma.rn.f32
// PTX:     st.global.v4.b32
// PTX-NOT: st.global
func.func @spmm(%A: tensor<?x?xbf16> {ditto.sparse}, %B: tensor<?x?xbf16>, %C: tensor<?x?xbf16>) -> tensor<?x?xbf16> {
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%C : tensor<?x?xbf16>) -> tensor<?x?xbf16>
  return %0 : tensor<?x?xbf16>
}
