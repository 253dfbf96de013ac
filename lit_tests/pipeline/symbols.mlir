// PTX takes fewer names than MLIR: a function's name becomes one that it takes, the same in PTX and in the package.
// RUN: sparseditto compile %s --entry spmv.v2 -o %t | FileCheck %s --check-prefix=SAYS
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx
// RUN: sparseditto compile %s --entry my-kernel -o %t | FileCheck %s --check-prefix=SAYS
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx

// SAYS: launch: {{[A-Za-z_][A-Za-z0-9_$]*}}, grid
// PTX:  .visible .entry {{[A-Za-z_][A-Za-z0-9_$]*}}({{$}}
func.func @spmv.v2(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func @"my-kernel"(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
