// RUN: not ditto-opt -p vectorize-entries --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'vectorize-entries{width=16}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'vectorize-entries{length=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'vectorise-entries' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'vectorize-entries,vectorize-entries' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'unroll,vectorize-entries' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'rows-to-threads,vectorize-entries' %s 2>&1 | FileCheck %s --check-prefix=MAPPED
// RUN: not ditto-opt -p 'slice-rows,vectorize-entries' %s 2>&1 | FileCheck %s --check-prefix=SLICES

// VALUE:    ditto-opt: bad-plan: vectorize-entries: width=16 is not one of (2, 4, 8)
// OPTION:   ditto-opt: bad-plan: vectorize-entries: no option 'length'; it has width
// TYPO:     ditto-opt: bad-plan: no pass is named 'vectorise-entries'; did you mean 'vectorize-entries'?
// TWICE:    ditto-opt: not-applicable: vectorize-entries: does not go with stored entries loaded in vectors
// UNROLLED: ditto-opt: not-applicable: vectorize-entries: does not go with the innermost reduction unrolled
// MAPPED:   ditto-opt: not-applicable: vectorize-entries: does not go with rows mapped to threads or subgroups
// SLICES:   ditto-opt: not-applicable: vectorize-entries: does not go with rows stored in slices

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// Its entries are loaded in vectors: once, and before they are unrolled or mapped.
func.func @sum(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
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

// -----

// Each block of four is a loop of its own.
// CHECK: ditto-opt: not-applicable: vectorize-entries: entries are read by more than their coordinates and values
func.func @blocks(%A: tensor<?x?xf32, #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>>, %blocks: memref<?x4xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>> to memref<?xindex>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %t = scf.for %q = %c0 to %c4 step %c1 iter_args(%b = %a) -> (f32) {
        %v = memref.load %blocks[%p, %q] : memref<?x4xf32>
        %n = arith.addf %b, %v : f32
        scf.yield %n : f32
      }
      scf.yield %t : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: vectorize-entries: there is no reduction over stored entries one by one
func.func @dense(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %c0 to %n step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %x[%p] : memref<?xf32>
      %s1 = arith.addf %a, %v : f32
      scf.yield %s1 : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
