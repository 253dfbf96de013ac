// Long rows in a kernel of their own: one PTX with two entries, launched in order.
// RUN: sparseditto compile %s -o %t --json --plan 'set-encoding,accumulate-registers,bin-rows{limit=64 length=2048 threads=512},stream-entries,rows-to-subgroups{lanes=8},map-blocks,bound-launch{blocks=8}' | FileCheck %s --check-prefix=MANIFEST
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx
// RUN: sparseditto compile %s -o %t --plan 'set-encoding,accumulate-registers,stream-entries,bin-rows{limit=64},rows-to-threads,map-blocks' && FileCheck %s --check-prefix=BOTH < %t/kernel.ptx
// RUN: sparseditto compile %s -o %t --plan 'set-encoding,accumulate-registers,stream-entries,bin-rows{limit=64},rows-to-threads,map-blocks' | FileCheck %s --check-prefix=SAYS

// The host makes three arrays by one recipe.
// MANIFEST:         "buffers": [
// MANIFEST:         "name": "y",
// MANIFEST:         "access": "readwrite",
// MANIFEST:         "name": "A.long_segments.rows",
// MANIFEST-NEXT:    "dtype": "int32",
// MANIFEST-NEXT:    "shape": [
// MANIFEST-NEXT:     "A.long_segments.rows.dim0"
// MANIFEST-NEXT:    ],
// MANIFEST-NEXT:    "access": "read",
// MANIFEST-NEXT:    "recipe": "long-segments{level=1 limit=64 length=2048}"
// MANIFEST:         "name": "A.long_segments.first",
// MANIFEST:         "recipe": "long-segments{level=1 limit=64 length=2048}"
// MANIFEST:         "name": "A.long_segments.last",
// MANIFEST:         "recipe": "long-segments{level=1 limit=64 length=2048}"

// First all rows, then the pieces of long ones: as many blocks as there are pieces.
// MANIFEST:         "launches": [
// MANIFEST:         "kernel": "spmv",
// MANIFEST-NEXT:    "grid": [
// MANIFEST-NEXT:     "ceildiv(A.lvl0, 16)",
// MANIFEST:         "block": [
// MANIFEST-NEXT:     128,
// MANIFEST:         "kernel": "spmv_long",
// MANIFEST-NEXT:    "grid": [
// MANIFEST-NEXT:     "A.long_segments.rows.dim0",
// MANIFEST:         "block": [
// MANIFEST-NEXT:     512,
// MANIFEST:         "arguments": [
// MANIFEST-NEXT:     "A.coordinates1",
// MANIFEST:          "A.long_segments.rows",
// MANIFEST-NEXT:     "A.long_segments.first",
// MANIFEST-NEXT:     "A.long_segments.last",
// MANIFEST-NOT:     "kernel"
// MANIFEST:         "sizes":

// The bound on registers is for the rows; the pieces meet in shared memory, and in one atomic addition a block.
// PTX:          .visible .entry spmv(
// PTX:          .{{maxntid|reqntid}} 128
// PTX:          .minnctapersm 8
// PTX:          ld.global.nc.L1::no_allocate.b32
// PTX:          ld.global.nc.L1::no_allocate.f32
// PTX-NOT:      bar.sync
// PTX:          ret;
// PTX:          .visible .entry spmv_long(
// PTX:          .{{maxntid|reqntid}} 512
// PTX-NOT:      .minnctapersm
// PTX:          .shared .align 4 .b8 [[BUFFER:[a-z0-9_]+]][64];
// PTX-COUNT-5:  shfl.sync.bfly.b32
// PTX:          [[BUFFER]]
// PTX:          st.shared.{{[bf]}}32
// PTX:          bar.sync 0;
// PTX:          ld.shared.{{[bf]}}32
// PTX-COUNT-4:  shfl.sync.bfly.b32
// PTX:          bar.sync 0;
// PTX:          {{atom|red}}.global.add.f32
// PTX-NOT:      {{atom|red}}.global
// PTX:          ret;

// Entries are streamed in both kernels where they were marked before.
// BOTH:         .visible .entry spmv(
// BOTH:         ld.global.nc.L1::no_allocate.b32
// BOTH:         ld.global.nc.L1::no_allocate.f32
// BOTH:         .visible .entry spmv_long(
// BOTH:         ld.global.nc.L1::no_allocate.b32
// BOTH:         ld.global.nc.L1::no_allocate.f32

// SAYS:      launch: spmv, grid ceildiv(A.lvl0, 128), block 128
// SAYS-NEXT: launch: spmv_long, grid A.long_segments.rows.dim0, block 256
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
