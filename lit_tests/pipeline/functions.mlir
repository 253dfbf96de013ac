// Of several functions --entry compiles one; names of operands come from its text.
// RUN: sparseditto compile %s --entry spmv -o %t --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=F32
// RUN: sparseditto compile %s --entry double -o %t --plan 'set-encoding,accumulate-registers,rows-to-subgroups{lanes=8},map-blocks' --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=F64
// RUN: FileCheck %s --check-prefix=PTX64 < %t/kernel.ptx
// RUN: sparseditto compile %s --entry transposed -o %t --print-ir-after=S1 --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=CSC
// RUN: sparseditto compile %s --entry pinned -o %t --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=PINNED
// RUN: sparseditto compile %s --entry named -o %t --bind matrix=%S/../Inputs/small.mtx --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks' --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=NAMED
// RUN: sparseditto compile %s --entry named -o %t --bind arg1=%S/../Inputs/small.mtx
// RUN: sparseditto compile - --entry numbered -o %t --print-ir-after=S4 < %s 2>&1 | FileCheck %s --check-prefix=NUMBERED
// RUN: sparseditto compile %s --entry blocks -o %t --size K=9 --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=BSR
// RUN: sparseditto compile %s --entry stored_rows -o %t --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=DCSR
// RUN: sparseditto compile %s --entry default_widths -o %t --print-ir-after=S4 2>&1 | FileCheck %s --check-prefix=DEFAULT

// F32:     gpu.func @spmv({{.*}} {ditto.name = "A.positions1", {{.*}} {ditto.name = "x", {{.*}} {ditto.access = "readwrite", ditto.name = "y",
// F32-NOT: gpu.func
// F32:     kernel: spmv (linalg.matvec) for sm_90
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// Halves of a double cross lanes as 32-bit integers.
// F64:     gpu.func @double(
// F64:     gpu.shuffle xor {{.*}} : i32
// F64:     gpu.shuffle xor {{.*}} : i32
// F64:     arith.addf %{{.*}} : f64
// PTX64:   .visible .entry double(
// PTX64:   ld.global.nc.{{[bf]}}64
// PTX64:   fma.rn.f64
// PTX64:   shfl.sync.bfly.b32
// PTX64:   st.global.{{[bf]}}64
func.func @double(%A: tensor<?x?xf64> {ditto.sparse}, %x: tensor<?xf64>, %y: tensor<?xf64>) -> tensor<?xf64> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf64>, tensor<?xf64>) outs(%y : tensor<?xf64>) -> tensor<?xf64>
  return %0 : tensor<?xf64>
}

// y = x A: the matrix's columns are the output's rows, so that it is stored by columns.
// CSC: #sparse_tensor.encoding<{ map = (d0, d1) -> (d1 : dense, d0 : compressed), posWidth = 32, crdWidth = 32 }>
// CSC: ditto.grid = ["ceildiv(A.lvl0, {{[0-9]+}})", "1", "1"]
// CSC: plan: set-encoding{format=csc
func.func @transposed(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.vecmat ins(%x, %A : tensor<?xf32>, tensor<?x?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// An encoding that the type carries is not chosen again.
// PINNED:     gpu.func @pinned(%{{.*}}: memref<1xi64, 1> {ditto.name = "A.positions1", {{.*}}: memref<1xi16, 1> {ditto.name = "A.coordinates1",
// PINNED-NOT: set-encoding
// PINNED:     plan: accumulate-registers
#PINNED = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 64, crdWidth = 16}>
func.func @pinned(%A: tensor<?x?xf32, #PINNED>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #PINNED>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// ditto.name overrides the name in the text.
// NAMED: gpu.func @named({{.*}} {ditto.name = "matrix.positions1", {{.*}} {ditto.name = "x", {{.*}} {ditto.access = "readwrite", ditto.name = "y",
func.func @named(%x: tensor<?xf32>, %A: tensor<?x?xf32> {ditto.sparse, ditto.name = "matrix"}, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// A number is no name: the operand is called by its place.
// NUMBERED: gpu.func @numbered({{.*}} {ditto.name = "arg0.positions1", {{.*}} {ditto.name = "arg1", {{.*}} {ditto.access = "readwrite", ditto.name = "arg2",
func.func @numbered(%0: tensor<?x?xf32> {ditto.sparse}, %1: tensor<?xf32>, %2: tensor<?xf32>) -> tensor<?xf32> {
  %3 = linalg.matvec ins(%0, %1 : tensor<?x?xf32>, tensor<?xf32>) outs(%2 : tensor<?xf32>) -> tensor<?xf32>
  return %3 : tensor<?xf32>
}

// Blocks, and a number of columns that no vector divides.
// BSR:     gpu.func @blocks(
// BSR-NOT: vector.load
// BSR:     ditto.grid = ["ceildiv(A.lvl0,
// BSR-NOT: vector.load
// BSR:     plan: accumulate-registers
#BSR = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 4 : dense, j floordiv 4 : compressed, i mod 4 : dense, j mod 4 : dense), posWidth = 32, crdWidth = 32}>
func.func @blocks(%A: tensor<?x?xf32, #BSR>, %B: tensor<?x?xf32>, %C: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xf32, #BSR>, tensor<?x?xf32>) outs(%C : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// The empty rows of a DCSR matrix get the fill from a kernel of its own.
// DCSR: gpu.func @stored_rows_fill(
// DCSR: gpu.func @stored_rows(
// DCSR: launch: stored_rows_fill, grid ceildiv({{.*}}result.dim0{{.*}}, 256), block 256
// DCSR: launch: stored_rows, grid ceildiv(A.coordinates0.length,
#DCSR = #sparse_tensor.encoding<{map = (i, j) -> (i : compressed, j : compressed), posWidth = 32, crdWidth = 32}>
func.func @stored_rows(%A: tensor<?x?xf32, #DCSR>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf32, #DCSR>
  %empty = tensor.empty(%m) : tensor<?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #DCSR>, tensor<?xf32>) outs(%init : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// Without widths in the encoding indices are MLIR's index type: 64 bits.
// DEFAULT: gpu.func @default_widths(%{{.*}}: memref<1xindex, 1> {ditto.name = "A.positions1"
#DEFAULT = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>
func.func @default_widths(%A: tensor<?x?xf32, #DEFAULT>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #DEFAULT>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
