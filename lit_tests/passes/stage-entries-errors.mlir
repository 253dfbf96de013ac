// RUN: not ditto-opt -p stage-entries --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'stage-entries{stage=entries}' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=STAGED
// RUN: not ditto-opt -p 'stage-entries{entries=100}' %s 2>&1 | FileCheck %s --check-prefix=ENTRIES
// RUN: not ditto-opt -p 'stage-entries{threads=32}' %s 2>&1 | FileCheck %s --check-prefix=THREADS
// RUN: not ditto-opt -p 'stage-entries{stage=sums}' %s 2>&1 | FileCheck %s --check-prefix=STAGE
// RUN: not ditto-opt -p 'stage-entries{entries=128 threads=256}' %s 2>&1 | FileCheck %s --check-prefix=SHARE
// RUN: not ditto-opt -p 'stage-entries{thread=64}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'stage-entry' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'stage-entries,stage-entries' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'segment-rows,stage-entries' %s 2>&1 | FileCheck %s --check-prefix=SEGMENTS
// RUN: not ditto-opt -p 'slice-rows,stage-entries' --split-input-file %s 2>&1 | FileCheck %s --check-prefix=SLICES
// RUN: not ditto-opt -p 'unroll,stage-entries' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED

// ENTRIES:  ditto-opt: bad-plan: stage-entries: entries=100 is not one of (128, 256, 512, 1024, 2048, 4096)
// THREADS:  ditto-opt: bad-plan: stage-entries: threads=32 is not one of (64, 128, 256, 512)
// STAGE:    ditto-opt: bad-plan: stage-entries: stage=sums is not one of ('products', 'entries')
// SHARE:    ditto-opt: not-applicable: stage-entries: 256 threads do not share 128 entries evenly
// OPTION:   ditto-opt: bad-plan: stage-entries: no option 'thread'; did you mean 'threads'?; it has entries, threads, stage
// TYPO:     ditto-opt: bad-plan: no pass is named 'stage-entry'; did you mean 'stage-entries'?
// TWICE:    ditto-opt: not-applicable: stage-entries: needs a parallel loop outside all others, not mapped yet
// SEGMENTS: ditto-opt: not-applicable: stage-entries: does not go with rows cut into segments
// SLICES:   ditto-opt: not-applicable: stage-entries: does not go with rows stored in slices
// UNROLLED: ditto-opt: not-applicable: stage-entries: does not go with the innermost reduction unrolled

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// Its entries are staged: once, and before anything else is decided about its rows.
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

#ROWS = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// CHECK:  ditto-opt: not-applicable: stage-entries: only sums can be cut
// STAGED: ditto-opt: not-applicable: stage-entries: only sums can be cut
func.func @maximum(%A: tensor<?x?xf32, #ROWS> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #ROWS>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #ROWS> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #ROWS> to memref<?xf32>
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
      %n = arith.maximumf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#TERM = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// The thread that loads an entry does not know its row, the one that sums it up does.
// CHECK:      ditto-opt: not-applicable: stage-entries: what an entry adds depends on its row; use stage=entries
// STAGED-NOT: row_term
func.func @row_term(%A: tensor<?x?xf32, #TERM> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #TERM>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #TERM> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #TERM> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #TERM> to memref<?xf32>
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
      %r = memref.load %x[%i] : memref<?xf32>
      %u = arith.mulf %b, %r : f32
      %t = arith.mulf %v, %u : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#USED = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// CHECK-NOT: place
// STAGED:    ditto-opt: not-applicable: stage-entries: entries are read by more than their coordinates and values
func.func @place(%A: tensor<?x?xf32, #USED> {ditto.name = "A"}, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #USED>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #USED> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #USED> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #USED> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %c = memref.load %crd[%p] : memref<?xi32>
      %j = arith.index_castui %c : i32 to index
      %v = memref.load %val[%p] : memref<?xf32>
      %b = memref.load %x[%p] : memref<?xf32>
      %t = arith.mulf %v, %b : f32
      %n = arith.addf %a, %t : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

#WIDE = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 0, crdWidth = 32}>

// CHECK:  ditto-opt: not-applicable: stage-entries: rows with dense columns or blocks inside are not staged
// STAGED: ditto-opt: not-applicable: stage-entries: rows with dense columns or blocks inside are not staged
func.func @spmm(%A: tensor<?x?xf32, #WIDE>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #WIDE>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #WIDE> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #WIDE> to memref<?xi32>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #WIDE> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %c = memref.load %crd[%p] : memref<?xi32>
        %j = arith.index_castui %c : i32 to index
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%j, %k] : memref<?x8xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}

// -----

// Nothing here is stored by rows.
// CHECK: ditto-opt: not-applicable: stage-entries: needs dense rows over compressed entries
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
