// RUN: not ditto-opt -p accumulate-wide --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'accumulate-wide{type=f80}' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=VALUE

// VALUE: ditto-opt: bad-plan: accumulate-wide: type=f80 is not one of ('f64',)

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: accumulate-wide: sums are carried in f64 already
func.func @wide(%A: tensor<?x?xf64, #CSR> {ditto.name = "A"}, %y: memref<?xf64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf64, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf64, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf64, #CSR> to memref<?xf64>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf64>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f64) {
      %v = memref.load %val[%p] : memref<?xf64>
      %n = arith.addf %a, %v : f64
      scf.yield %n : f64
    }
    memref.store %s, %y[%i] : memref<?xf64>
  }
  return
}

// -----

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: accumulate-wide: only sums are carried in a wider type
func.func @maximum(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %n = arith.maximumf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: accumulate-wide: there is no reduction
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %y, %c0 : memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
