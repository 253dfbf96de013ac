// A product element by element has no reduction to share: each row goes to one thread, whatever plan is the default.
// RUN: sparseditto compile %s -o %t && FileCheck %s < %t/kernel.ptx
// RUN: sparseditto compile %s -o %t --plan 'set-encoding,rows-to-threads,map-blocks' && FileCheck %s < %t/kernel.ptx

// CHECK: .visible .entry scale(
// CHECK: fma.rn.f32
#matrix = affine_map<(i, j) -> (i, j)>
func.func @scale(%A: tensor<?x?xf32> {ditto.sparse}, %D: tensor<?x?xf32>, %C: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = linalg.generic {indexing_maps = [#matrix, #matrix, #matrix], iterator_types = ["parallel", "parallel"]} ins(%A, %D : tensor<?x?xf32>, tensor<?x?xf32>) outs(%C : tensor<?x?xf32>) {
  ^bb0(%a: f32, %d: f32, %o: f32):
    %t = arith.mulf %a, %d : f32
    %s = arith.addf %o, %t : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
