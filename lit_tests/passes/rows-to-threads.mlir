// RUN: ditto-opt -p rows-to-threads %s | FileCheck %s

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// The loop over rows becomes one over threads; what a thread does stays as it was.
// CHECK-LABEL: func.func @spmv
// CHECK:         %[[M:.*]] = sparse_tensor.lvl
// CHECK:         scf.forall (%[[I:.*]]) in (%[[M]]) {
// CHECK-NEXT:      %[[LO:.*]] = memref.load %[[POS:.*]][%[[I]]]
// CHECK-NEXT:      %[[NEXT:.*]] = arith.addi %[[I]], %c1
// CHECK-NEXT:      %[[HI:.*]] = memref.load %[[POS]][%[[NEXT]]]
// CHECK-NEXT:      %[[Y0:.*]] = memref.load %[[Y:.*]][%[[I]]]
// CHECK-NEXT:      %[[S:.*]] = scf.for %{{.*}} = %[[LO]] to %[[HI]] step %c1 iter_args(%{{.*}} = %[[Y0]]) -> (f32) {
// CHECK:           memref.store %[[S]], %[[Y]][%[[I]]]
// CHECK-NEXT:    } {mapping = [#gpu.thread<linear_dim_0>]}
// CHECK-NEXT:    return
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%j] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// Only the outermost loop is mapped: each thread walks the columns by itself.
// CHECK-LABEL: func.func @spmm
// CHECK:         scf.forall (%[[I:.*]]) in (%{{.*}}) {
// CHECK:           scf.for %[[K:.*]] = %c0 to %c8 step %c1 {
// CHECK:             scf.for
// CHECK:             memref.store %{{.*}}, %{{.*}}[%[[I]], %[[K]]]
// CHECK:         } {mapping = [#gpu.thread<linear_dim_0>]}
func.func @spmm(%A: tensor<?x?xf64, #CSR>, %B: memref<?x8xf64>, %C: memref<?x8xf64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f64
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf64, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf64, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf64, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf64, #CSR> to memref<?xf64>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c8 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f64) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf64>
        %b = memref.load %B[%j, %k] : memref<?x8xf64>
        %t = arith.mulf %v, %b : f64
        %n = arith.addf %a, %t : f64
        scf.yield %n : f64
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf64>
    }
  }
  return
}

// A function that the pass does not apply to is left alone when it applies to another one.
// CHECK-LABEL: func.func @no_nest
// CHECK-NEXT:    return
func.func @no_nest() {
  return
}
