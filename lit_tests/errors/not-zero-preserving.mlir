// A maximum over stored entries alone is not the maximum of the row: upstream makes no loops of it, and that is no fault of ours.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry maximum -o %t 2>&1 | FileCheck %s --check-prefix=MAXIMUM
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry quotient -o %t 2>&1 | FileCheck %s --check-prefix=QUOTIENT
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry everything -o %t 2>&1 | FileCheck %s --check-prefix=EVERYTHING

#matrix = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i, j) -> (i)>
#columns = affine_map<(i, j) -> (j)>
#one = affine_map<(i, j) -> ()>

func.func @maximum(%A: tensor<?x?xf32> {ditto.sparse}, %y: tensor<?xf32>) -> tensor<?xf32> {
  // MAXIMUM: sparseditto: unsupported: {{.*}}not-zero-preserving.mlir:{{[0-9]+}}:{{[0-9]+}}:
  %0 = linalg.generic {indexing_maps = [#matrix, #rows], iterator_types = ["parallel", "reduction"]} ins(%A : tensor<?x?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @quotient(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  // QUOTIENT: sparseditto: unsupported: {{.*}}not-zero-preserving.mlir:{{[0-9]+}}:{{[0-9]+}}: the term is not 0 where the sparse operand stores nothing
  %0 = linalg.generic {indexing_maps = [#matrix, #columns, #rows], iterator_types = ["parallel", "reduction"]} ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %q = arith.divf %b, %a : f32
    %s = arith.addf %o, %q : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @everything(%A: tensor<?x?xf32> {ditto.sparse}, %y: tensor<f32>) -> tensor<f32> {
  // EVERYTHING: sparseditto: unsupported: {{.*}}no dimension of the sparse operand indexes the output; such reductions are not compiled
  %0 = linalg.generic {indexing_maps = [#matrix, #one], iterator_types = ["reduction", "reduction"]} ins(%A : tensor<?x?xf32>) outs(%y : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %0 : tensor<f32>
}
