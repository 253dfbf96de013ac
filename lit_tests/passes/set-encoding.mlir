// RUN: ditto-opt -p set-encoding %s | FileCheck %s
// RUN: ditto-opt -p 'set-encoding{format=csr positions=64 coordinates=16}' %s | FileCheck %s --check-prefix=WIDTHS
// RUN: ditto-opt -p 'set-encoding{format=csc}' %s | FileCheck %s --check-prefix=CSC
// RUN: ditto-opt -p 'set-encoding{format=dcsr}' %s | FileCheck %s --check-prefix=DCSR
// RUN: ditto-opt -p 'set-encoding{format=dcsc}' %s | FileCheck %s --check-prefix=DCSC
// RUN: ditto-opt -p 'set-encoding{format=bsr block-rows=2 block-columns=8}' %s | FileCheck %s --check-prefix=BSR

// The marked operand gets the encoding, in its argument and wherever it is used; the mark goes, other attributes stay.
// CHECK:       #[[CSR:.*]] = #sparse_tensor.encoding<{ map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 32 }>
// CHECK-LABEL: func.func @spmv(
// CHECK-SAME:    %[[A:.*]]: tensor<?x?xf32, #[[CSR]]> {ditto.name = "A"}, %[[X:.*]]: tensor<?xf32>, %[[Y:.*]]: tensor<?xf32>) -> tensor<?xf32>
// CHECK-NEXT:    linalg.matvec ins(%[[A]], %[[X]] : tensor<?x?xf32, #[[CSR]]>, tensor<?xf32>) outs(%[[Y]] : tensor<?xf32>) -> tensor<?xf32>

// WIDTHS: #sparse_tensor.encoding<{ map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 64, crdWidth = 16 }>
// CSC:    #sparse_tensor.encoding<{ map = (d0, d1) -> (d1 : dense, d0 : compressed), posWidth = 32, crdWidth = 32 }>
// DCSR:   #sparse_tensor.encoding<{ map = (d0, d1) -> (d0 : compressed, d1 : compressed), posWidth = 32, crdWidth = 32 }>
// DCSC:   #sparse_tensor.encoding<{ map = (d0, d1) -> (d1 : compressed, d0 : compressed), posWidth = 32, crdWidth = 32 }>
// BSR:    #sparse_tensor.encoding<{ map = (d0, d1) -> (d0 floordiv 2 : dense, d1 floordiv 8 : compressed, d0 mod 2 : dense, d1 mod 8 : dense), posWidth = 32, crdWidth = 32 }>
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse, ditto.name = "A"}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// A static shape stays, and sizes are taken of the encoded tensor.
// CHECK-LABEL: func.func @size(
// CHECK-SAME:    %[[A:.*]]: tensor<16x?xf64, #[[CSR]]>) -> index
// CHECK:         tensor.dim %[[A]], %{{.*}} : tensor<16x?xf64, #[[CSR]]>
func.func @size(%A: tensor<16x?xf64> {ditto.sparse}) -> index {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %A, %c1 : tensor<16x?xf64>
  return %n : index
}

// An operand whose type carries an encoding is pinned.
// DCSR-LABEL: func.func @pinned(
// DCSR-SAME:    tensor<?x?xf32, #[[PINNED:.*]]>) -> tensor<?x?xf32, #[[PINNED]]>
#CSC = #sparse_tensor.encoding<{map = (i, j) -> (j : dense, i : compressed), posWidth = 16, crdWidth = 16}>
func.func @pinned(%A: tensor<?x?xf32, #CSC>) -> tensor<?x?xf32, #CSC> {
  return %A : tensor<?x?xf32, #CSC>
}
