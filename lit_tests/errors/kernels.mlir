// Kernels that are valid MLIR and that nothing here compiles: one message with the place, exit code 2, and no package.
// RUN: rm -rf %t
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry none -o %t 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry two -o %t 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry integers -o %t 2>&1 | FileCheck %s --check-prefix=INT
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry quarters -o %t 2>&1 | FileCheck %s --check-prefix=QUARTER
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry sum_beside -o %t 2>&1 | FileCheck %s --check-prefix=OP
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry not_initialised -o %t 2>&1 | FileCheck %s --check-prefix=INIT
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry three_dimensions -o %t 2>&1 | FileCheck %s --check-prefix=CUBE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry returns_other -o %t 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry two_ops -o %t 2>&1 | FileCheck %s --check-prefix=OPS
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry sine -o %t 2>&1 | FileCheck %s --check-prefix=SIN
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry diagonal -o %t 2>&1 | FileCheck %s --check-prefix=DIAG
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry sparse_result -o %t 2>&1 | FileCheck %s --check-prefix=RESULT
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry reads_constant -o %t 2>&1 | FileCheck %s --check-prefix=MIX
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry index_input -o %t 2>&1 | FileCheck %s --check-prefix=INPUT
// RUN: test ! -e %t

#matrix = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i, j) -> (i)>
#diagonal = affine_map<(i) -> (i, i)>
#all = affine_map<(i) -> (i)>

func.func @none(%A: tensor<?x?xf32>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  // NONE: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: 0 operands are sparse; exactly one input must be: give it a #sparse_tensor.encoding or mark its argument ditto.sparse
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @two(%A: tensor<?x?xf32> {ditto.sparse}, %B: tensor<?x?xf32> {ditto.sparse}, %C: tensor<?x?xf32>) -> tensor<?x?xf32> {
  // TWO: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: 2 operands are sparse; exactly one input must be
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xf32>, tensor<?x?xf32>) outs(%C : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

func.func @sparse_result(%A: tensor<?x?xf32>, %B: tensor<?x?xf32>, %C: tensor<?x?xf32> {ditto.sparse}) -> tensor<?x?xf32> {
  // RESULT: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: 1 operands are sparse (the output among them); exactly one input must be
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xf32>, tensor<?x?xf32>) outs(%C : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

func.func @integers(%A: tensor<?x?xi32> {ditto.sparse}, %x: tensor<?xi32>, %y: tensor<?xi32>) -> tensor<?xi32> {
  // INT: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: element type i32 is not supported; f16, bf16, f32, f64 are
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xi32>, tensor<?xi32>) outs(%y : tensor<?xi32>) -> tensor<?xi32>
  return %0 : tensor<?xi32>
}

func.func @quarters(%A: tensor<?x?xf8E4M3FN> {ditto.sparse}, %x: tensor<?xf8E4M3FN>, %y: tensor<?xf8E4M3FN>) -> tensor<?xf8E4M3FN> {
  // QUARTER: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: element type f8E4M3FN is not supported; f16, bf16, f32, f64 are
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf8E4M3FN>, tensor<?xf8E4M3FN>) outs(%y : tensor<?xf8E4M3FN>) -> tensor<?xf8E4M3FN>
  return %0 : tensor<?xf8E4M3FN>
}

func.func @sum_beside(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  // OP: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: two old values are added; only one argument can be what the output starts from
  %z = arith.addf %y, %y : tensor<?xf32>
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%z : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @not_initialised(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %A, %c0 : tensor<?x?xf32>
  %y = tensor.empty(%m) : tensor<?xf32>
  // INIT: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: the output starts from neither an argument nor a linalg.fill of a constant
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @three_dimensions(%A: tensor<?x?x?xf32> {ditto.sparse}, %B: tensor<?x?x?xf32>, %C: tensor<?x?x?xf32>) -> tensor<?x?x?xf32> {
  // CUBE: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: the sparse operand 'A' has rank 3; matrices are supported
  %0 = linalg.batch_matmul ins(%A, %B : tensor<?x?x?xf32>, tensor<?x?x?xf32>) outs(%C : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  return %0 : tensor<?x?x?xf32>
}

func.func @returns_other(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  // OTHER: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:3: the function must return the result of its linalg op
  return %y : tensor<?xf32>
}

// OPS: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:1: the function has 2 linalg ops (linalg.fill aside), 2 of them with a sparse operand; exactly one is compiled at a time
func.func @two_ops(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  %1 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%0 : tensor<?xf32>) -> tensor<?xf32>
  return %1 : tensor<?xf32>
}

func.func @sine(%A: tensor<?x?xf32> {ditto.sparse}, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic {indexing_maps = [#matrix, #rows], iterator_types = ["parallel", "reduction"]} ins(%A : tensor<?x?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    // SIN: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:10: 'math.sin' in the body is not supported
    %t = math.sin %a : f32
    %s = arith.addf %o, %t : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @diagonal(%A: tensor<?x?xf32> {ditto.sparse}, %y: tensor<?xf32>) -> tensor<?xf32> {
  // DIAG: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: the indexing map (d0) -> (d0, d0) uses a loop twice
  %0 = linalg.generic {indexing_maps = [#diagonal, #all], iterator_types = ["parallel"]} ins(%A : tensor<?x?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @reads_constant(%A: tensor<8x8xf32> {ditto.sparse}, %y: tensor<8xf32>) -> tensor<8xf32> {
  %x = arith.constant dense<1.0> : tensor<8xf32>
  // MIX: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:8: an input that is no argument of the function is not supported
  %0 = linalg.matvec ins(%A, %x : tensor<8x8xf32>, tensor<8xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

func.func @index_input(%A: tensor<?x?xf32> {ditto.sparse}, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic {indexing_maps = [#matrix, #rows], iterator_types = ["parallel", "reduction"]} ins(%A : tensor<?x?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    // INPUT: sparseditto: unsupported: {{.*}}kernels.mlir:[[#@LINE+1]]:10: 'linalg.index' in the body is not supported
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    %t = arith.mulf %a, %f : f32
    %s = arith.addf %o, %t : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
