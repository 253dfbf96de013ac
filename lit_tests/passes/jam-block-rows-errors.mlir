// RUN: not ditto-opt -p 'jam-block-rows' %s 2>&1 | FileCheck %s
// RUN: not sparseditto compile %S/../../examples/spmv.mlir --plan 'set-encoding{format=bsr},accumulate-registers,jam-block-rows,jam-block-rows,rows-to-threads,map-blocks' -o %t 2>&1 | FileCheck %s --check-prefix=TWICE

// CHECK: ditto-opt: not-applicable: jam-block-rows: the matrix is not stored in blocks
// TWICE: jam-block-rows: does not go with several tiles of columns in one walk over the entries

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>
func.func @spmv(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32> {ditto.name = "x"}, %y: memref<?xf32> {ditto.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  scf.for %i = %c0 to %m step %c1 {
    %lo32 = memref.load %pos[%i] : memref<?xi32>
    %lo = arith.index_castui %lo32 : i32 to index
    %next = arith.addi %i, %c1 : index
    %hi32 = memref.load %pos[%next] : memref<?xi32>
    %hi = arith.index_castui %hi32 : i32 to index
    %old = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %old) -> (f32) {
      %j32 = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %j32 : i32 to index
      %v = memref.load %val[%p] : memref<?xf32>
      %w = memref.load %x[%j] : memref<?xf32>
      %vw = arith.mulf %v, %w : f32
      %n = arith.addf %a, %vw : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
