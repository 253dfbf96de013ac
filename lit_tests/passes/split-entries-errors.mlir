// RUN: not ditto-opt -p split-entries --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'split-entries{length=100}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'split-entries{mode=ordered}' %s 2>&1 | FileCheck %s --check-prefix=MODE
// RUN: not ditto-opt -p 'split-entries{lanes=8}' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=LANES
// RUN: not ditto-opt -p 'split-entries{share=columns}' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=COLUMNS
// RUN: not ditto-opt -p 'split-entries,split-entries' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'unroll,split-entries' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'segment-rows,split-entries' %s 2>&1 | FileCheck %s --check-prefix=SEGMENTS
// RUN: not ditto-opt -p 'split-entries{mode=deterministic}' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=ORDER

// VALUE:    ditto-opt: bad-plan: split-entries: length=100 is not one of (32, 64, 128, 256, 512, 1024, 2048, 4096)
// MODE:     ditto-opt: bad-plan: split-entries: mode=ordered is not one of ('atomic', 'deterministic')
// LANES:    ditto-opt: not-applicable: split-entries: entries are shared by all 32 lanes of a warp, or not at all
// COLUMNS:  ditto-opt: not-applicable: split-entries: needs one loop over dense columns, not 0
// TWICE:    ditto-opt: not-applicable: split-entries: needs a parallel loop outside all others
// UNROLLED: ditto-opt: not-applicable: split-entries: does not go with the innermost reduction unrolled
// SEGMENTS: ditto-opt: not-applicable: split-entries: does not go with rows cut into segments

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Parts of it go; once, before the walk is unrolled, and not where rows are cut already.
func.func @sum(%A: tensor<?x?xf32, #CSR> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
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

// -----

#ROWS = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: split-entries: only sums can be cut
func.func @maximum(%A: tensor<?x?xf32, #ROWS> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS> to memref<?xf32>
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
      %n = arith.maximumf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// Nothing here is stored by rows.
// CHECK: ditto-opt: not-applicable: split-entries: needs dense rows over compressed entries
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#SCALED = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: ditto-opt: not-applicable: split-entries: what an entry adds depends on its row, and that is known only where the row ends
func.func @scaled(%A: tensor<?x?xf32, #SCALED> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #SCALED>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #SCALED> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #SCALED> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %b = memref.load %x[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#SPMM = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// ORDER: ditto-opt: not-applicable: split-entries: the number of columns is not known; give its size (--size K=…)
func.func @columns(%A: tensor<?x?xf32, #SPMM>, %B: memref<?x?xf32>, %C: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = memref.dim %B, %c1 : memref<?x?xf32>
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #SPMM>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #SPMM> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #SPMM> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #SPMM> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x?xf32>
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %c) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x?xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x?xf32>
    }
  }
  return
}
