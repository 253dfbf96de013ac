// Scalars on the command line: values when a kernel runs, by-value parameters in PTX.
// RUN: rm -rf %t
// RUN: sparseditto compile %s --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks' -o %t
// RUN: FileCheck %s --input-file=%t/kernel.ptx --check-prefix=PTX
// RUN: sparseditto run %t --bind A=%S/../Inputs/small.mtx --bind alpha=2.0 --bind beta=0 --device simt --check | FileCheck %s --check-prefix=RAN
// RUN: not sparseditto run %t --bind A=%S/../Inputs/small.mtx --bind alpha=2.0 --device simt 2>&1 | FileCheck %s --check-prefix=UNBOUND
// RUN: not sparseditto run %t --bind A=%S/../Inputs/small.mtx --bind alpha=two --bind beta=0 --device simt 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: not sparseditto run %t --bind A=%S/../Inputs/small.mtx --bind alpa=2.0 --bind beta=0 --device simt 2>&1 | FileCheck %s --check-prefix=TYPO

// PTX:     .param .f32
// PTX:     .param .f32
// PTX:     ld.param.b32
// RAN:     check passed
// UNBOUND: sparseditto: bad-input: bind a number to the scalar 'beta' (--bind beta=1.0)
// TEXT:    sparseditto: bad-input: 'alpha': 'two' is no number; bind one, as in alpha=1.0
// TYPO:    sparseditto: bad-input: the kernel has no operand 'alpa'; did you mean 'alpha'?; it has A, x, y, alpha, beta
func.func @gemv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>, %alpha: f32, %beta: f32) -> tensor<?xf32> {
  %scaled = linalg.map outs(%y : tensor<?xf32>) (%old: f32) {
    %0 = arith.mulf %beta, %old : f32
    linalg.yield %0 : f32
  }
  %r = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>],
    iterator_types = ["parallel", "reduction"]
  } ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%scaled : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %alpha, %0 : f32
    %2 = arith.addf %sum, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
