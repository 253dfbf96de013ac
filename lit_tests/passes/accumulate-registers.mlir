// RUN: ditto-opt -p accumulate-registers %s | FileCheck %s

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// The column loop moves outside the reduction; each sum starts from the output's old value and is stored once.
// What only depends on the row is computed there.
// CHECK-LABEL: func.func @old_value
// CHECK:         scf.for %[[I:.*]] = %c0 to %{{.*}} step %c1 {
// CHECK-NEXT:      %[[LO:.*]] = memref.load %{{.*}}[%[[I]]] : memref<?xindex>
// CHECK-NEXT:      %[[I1:.*]] = arith.addi %[[I]], %c1
// CHECK-NEXT:      %[[HI:.*]] = memref.load %{{.*}}[%[[I1]]] : memref<?xindex>
// CHECK-NEXT:      scf.for %[[K:.*]] = %c0 to %c8 step %c1 {
// CHECK-NEXT:        %[[OLD:.*]] = memref.load %arg2[%[[I]], %[[K]]]
// CHECK-NEXT:        %[[S:.*]] = scf.for %[[P:.*]] = %[[LO]] to %[[HI]] step %c1 iter_args(%[[A:.*]] = %[[OLD]]) -> (f32) {
// CHECK-NEXT:          %[[J:.*]] = memref.load %{{.*}}[%[[P]]] : memref<?xindex>
// CHECK-NEXT:          %[[V:.*]] = memref.load %{{.*}}[%[[P]]] : memref<?xf32>
// CHECK-NEXT:          %[[B:.*]] = memref.load %arg1[%[[J]], %[[K]]]
// CHECK-NEXT:          %[[T:.*]] = arith.mulf %[[V]], %[[B]]
// CHECK-NEXT:          %[[N:.*]] = arith.addf %[[A]], %[[T]]
// CHECK-NEXT:          scf.yield %[[N]]
// CHECK-NEXT:        }
// CHECK-NEXT:        memref.store %[[S]], %arg2[%[[I]], %[[K]]]
func.func @old_value(%A: tensor<?x?xf32, #CSR>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %p = %lo to %hi step %c1 {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf32>
      scf.for %k = %c0 to %c8 step %c1 {
        %c = memref.load %C[%i, %k] : memref<?x8xf32>
        %b = memref.load %B[%j, %k] : memref<?x8xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %c, %t : f32
        memref.store %n, %C[%i, %k] : memref<?x8xf32>
      }
    }
  }
  return
}

// A fill is where the sums start: the output is not read at all.
// CHECK-LABEL: func.func @fill
// CHECK:         %[[INITIAL:.*]] = arith.constant 2.000000e+00 : f64
// CHECK-NOT:     linalg.fill
// CHECK-NOT:     memref.load %arg2
// CHECK:         iter_args(%{{.*}} = %[[INITIAL]]) -> (f64) {
// CHECK-NOT:     memref.load %arg2
// CHECK:         memref.store
func.func @fill(%A: tensor<?x?xf64, #CSR>, %B: memref<?x8xf64>, %C: memref<?x8xf64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %initial = arith.constant 2.0 : f64
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf64, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf64, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf64, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf64, #CSR> to memref<?xf64>
  linalg.fill ins(%initial : f64) outs(%C : memref<?x8xf64>)
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %p = %lo to %hi step %c1 {
      %j = memref.load %crd[%p] : memref<?xindex>
      %v = memref.load %val[%p] : memref<?xf64>
      scf.for %k = %c0 to %c8 step %c1 {
        %c = memref.load %C[%i, %k] : memref<?x8xf64>
        %b = memref.load %B[%j, %k] : memref<?x8xf64>
        %t = arith.mulf %v, %b : f64
        %n = arith.addf %t, %c : f64
        memref.store %n, %C[%i, %k] : memref<?x8xf64>
      }
    }
  }
  return
}

// The sum is in a register already (sparsification does that where the reduction is innermost): only loads move.
// CHECK-LABEL: func.func @registers
// CHECK:         scf.for %[[I:.*]] = %c0
// CHECK:           %[[OLD:.*]] = memref.load %arg1[%[[I]]]
// CHECK-NEXT:      %[[S:.*]] = scf.for %{{.*}} iter_args(%{{.*}} = %[[OLD]]) -> (f32) {
// CHECK:           memref.store %[[S]], %arg1[%[[I]]]
func.func @registers(%A: tensor<?x?xf32, #CSR>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %n = arith.maximumf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
