// RUN: not ditto-opt -p bin-rows --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'bin-rows{limit=100}' %s 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not ditto-opt -p 'bin-rows{length=1000}' %s 2>&1 | FileCheck %s --check-prefix=LENGTH
// RUN: not ditto-opt -p 'bin-rows{threads=32}' %s 2>&1 | FileCheck %s --check-prefix=THREADS
// RUN: not ditto-opt -p 'bin-rows{lenght=1024}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'bin-row' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'bin-rows,bin-rows' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'segment-rows,bin-rows' %s 2>&1 | FileCheck %s --check-prefix=SEGMENTS
// RUN: not ditto-opt -p 'unroll,bin-rows' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'rows-to-threads,bin-rows' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// LIMIT:    ditto-opt: bad-plan: bin-rows: limit=100 is not one of (32, 64, 128, 256, 512, 1024)
// LENGTH:   ditto-opt: bad-plan: bin-rows: length=1000 is not one of (1024, 2048, 4096, 8192, 16384, 1073741824)
// THREADS:  ditto-opt: bad-plan: bin-rows: threads=32 is not one of (128, 256, 512, 1024)
// OPTION:   ditto-opt: bad-plan: bin-rows: no option 'lenght'; did you mean 'length'?; it has limit, length, threads
// TYPO:     ditto-opt: bad-plan: no pass is named 'bin-row'; did you mean 'bin-rows'?
// TWICE:    ditto-opt: not-applicable: bin-rows: does not go with long rows in a kernel of their own
// SEGMENTS: ditto-opt: not-applicable: bin-rows: does not go with rows cut into segments
// UNROLLED: ditto-opt: not-applicable: bin-rows: does not go with the innermost reduction unrolled
// MAPPED:   ditto-opt: not-applicable: bin-rows: needs a parallel loop outside all others, not mapped yet

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// Its long rows go to a kernel of their own, once, and before anything else is decided about rows.
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

// CHECK: ditto-opt: not-applicable: bin-rows: only sums can be cut
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

#WIDE = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// A block would need a total for each column.
// CHECK: ditto-opt: not-applicable: bin-rows: long rows with dense columns or blocks inside are not binned; segment-rows cuts them
func.func @spmm(%A: tensor<?x?xf32, #WIDE> {ditto.name = "A"}, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %columns = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #WIDE>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #WIDE> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #WIDE> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #WIDE> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %columns step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
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
// CHECK: ditto-opt: not-applicable: bin-rows: needs dense rows over compressed entries
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
