// RUN: rm -rf %t
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind Z=%S/../Inputs/small.mtx 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind Matrxi=%S/../Inputs/small.mtx 2>&1 | FileCheck %s --check-prefix=NEAR
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind result=%S/../Inputs/small.mtx 2>&1 | FileCheck %s --check-prefix=RESULT
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind Matrix 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind Matrix=%S/../Inputs/small.mtx --bind arg0=%S/../Inputs/small.mtx 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind Matrix=%t.mtx 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind B=%S/../Inputs/small.mtx 2>&1 | FileCheck %s --check-prefix=DENSE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --bind Matrix=%S/../Inputs/small.mtx --size N=7 2>&1 | FileCheck %s --check-prefix=SHAPE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --size Q=7 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --size K=x 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --size K=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --size B.1=64 --size K=32 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: test ! -e %t

// UNKNOWN:  sparseditto: bad-input: the kernel has no operand 'Z'; it has Matrix, B
// NEAR:     sparseditto: bad-input: the kernel has no operand 'Matrxi'; did you mean 'Matrix'?; it has Matrix, B
// RESULT:   sparseditto: bad-input: the kernel has no operand 'result'; it has Matrix, B
// WORD:     sparseditto: bad-input: 'Matrix' is no binding; write OPERAND=FILE, as in A=matrix.mtx
// TWICE:    sparseditto: bad-input: 'Matrix' is bound twice
// FILE:     sparseditto: bad-input: {{.*}}.mtx: cannot be read: No such file or directory
// DENSE:    sparseditto: bad-input: {{.*}}small.mtx: 'B' is dense: bind a .npy file
// SHAPE:    sparseditto: bad-input: --size N gives size 7, but what is bound to 'Matrix' gives 4 (dimension 1 of 'Matrix', dimension 0 of 'B')
// SIZE:     sparseditto: bad-input: no size is named 'Q'; there are d0, d1, d2, M, N, K, and NAME.0, NAME.1 for an operand's dimensions
// NUMBER:   sparseditto: bad-input: 'K=x' is no size; write NAME=NUMBER, as in K=64
// NEGATIVE: sparseditto: bad-input: 'K=-1' is no size; write NAME=NUMBER, as in K=64
// TYPE:     sparseditto: bad-input: --size K gives size 32, but --size B.1 gives 64 (dimension 1 of 'B', dimension 1 of 'result')
func.func @spmm(%Matrix: tensor<?x?xf32> {ditto.sparse}, %B: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %Matrix, %c0 : tensor<?x?xf32>
  %k = tensor.dim %B, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %k) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %C = linalg.matmul ins(%Matrix, %B : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %C : tensor<?x?xf32>
}
