// Rows in segments: a kernel sets cut rows to where their sums start, before the one that adds to them.
// RUN: sparseditto compile %s -o %t --size K=64 --json --plan 'set-encoding,accumulate-registers,segment-rows{length=64},vectorize,stream-entries,rows-to-subgroups{lanes=16},map-blocks' | FileCheck %s --check-prefix=MANIFEST
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx

// MANIFEST:      "buffers": [
// MANIFEST:      "name": "result",
// MANIFEST:      "access": "readwrite",
// MANIFEST:      "name": "A.row_segments.cut",
// MANIFEST:      "recipe": "row-segments{level=1 length=64}"
// MANIFEST:      "name": "A.row_segments.rows",
// MANIFEST:      "recipe": "row-segments{level=1 length=64}"
// MANIFEST:      "name": "A.row_segments.positions",
// MANIFEST:      "recipe": "row-segments{level=1 length=64}"

// MANIFEST:      "launches": [
// MANIFEST:      "kernel": "spmm_init",
// MANIFEST-NEXT: "grid": [
// MANIFEST-NEXT:  "ceildiv((64 * A.row_segments.cut.dim0), 256)",
// MANIFEST:      "arguments": [
// MANIFEST-NEXT:  "result",
// MANIFEST-NEXT:  "A.row_segments.cut",
// MANIFEST:      "kernel": "spmm",
// MANIFEST-NEXT: "grid": [
// MANIFEST-NEXT:  "ceildiv(A.row_segments.rows.dim0, 8)",
// MANIFEST-NOT:  "kernel":
// MANIFEST:      "sizes":

// A whole row is stored 128 bits at a time, a cut one is added to one number at a time.
// PTX:         .visible .entry spmm_init(
// PTX-NOT:     no_allocate
// PTX:         st.global
// PTX:         .visible .entry spmm(
// PTX:         ld.global.nc.L1::no_allocate.b32
// PTX:         ld.global.nc.L1::no_allocate.f32
// PTX:         ld.global.nc.v4.{{[bf]}}32
// PTX-DAG:     st.global.v4.{{[bf]}}32
// PTX-DAG:     {{atom|red}}.global.add.f32
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
