// RUN: not ditto-opt -p 'rows-to-subgroups{share=entries}' --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=3}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=64}' %s 2>&1 | FileCheck %s --check-prefix=LARGE
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=many}' %s 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not ditto-opt -p 'rows-to-subgroups{share=rows}' %s 2>&1 | FileCheck %s --check-prefix=SHARE
// RUN: not ditto-opt -p 'rows-to-subgroups{lane=8}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes}' %s 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=8 lanes=4}' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'row-to-subgroups' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'rows-to-subgroups{share=columns}' %s 2>&1 | FileCheck %s --check-prefix=COLUMNS
// RUN: not ditto-opt -p 'unroll,rows-to-subgroups{share=entries}' %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'rows-to-threads,rows-to-subgroups' %s 2>&1 | FileCheck %s --check-prefix=MAPPED
// RUN: not ditto-opt -p 'rows-to-subgroups,rows-to-subgroups' %s 2>&1 | FileCheck %s --check-prefix=MAPPED

// VALUE:    ditto-opt: bad-plan: rows-to-subgroups: lanes=3 is not one of (1, 2, 4, 8, 16, 32)
// LARGE:    ditto-opt: bad-plan: rows-to-subgroups: lanes=64 is not one of (1, 2, 4, 8, 16, 32)
// NUMBER:   ditto-opt: bad-plan: rows-to-subgroups: lanes=many: that is no int
// SHARE:    ditto-opt: bad-plan: rows-to-subgroups: share=rows is not one of ('auto', 'columns', 'entries')
// OPTION:   ditto-opt: bad-plan: rows-to-subgroups: no option 'lane'; did you mean 'lanes'?; it has lanes, share
// WORD:     ditto-opt: bad-plan: rows-to-subgroups: 'lanes' is no option; write name=value
// TWICE:    ditto-opt: bad-plan: rows-to-subgroups: option 'lanes' is given twice
// TYPO:     ditto-opt: bad-plan: no pass is named 'row-to-subgroups'; did you mean 'rows-to-subgroups'?
// COLUMNS:  ditto-opt: not-applicable: rows-to-subgroups: needs one loop over dense columns, not 0
// UNROLLED: ditto-opt: not-applicable: rows-to-subgroups: the reduction is unrolled already: share first, then unroll
// MAPPED:   ditto-opt: not-applicable: rows-to-subgroups: needs a parallel loop outside all others, not mapped yet

func.func @spmv(%pos: memref<?xindex>, %val: memref<?xf32>, %x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %val[%p] : memref<?xf32>
      %n = arith.addf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: rows-to-subgroups: there is no reduction to share
func.func @no_reduction(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: rows-to-subgroups: a sum of the reduction depends on another
func.func @two_sums(%x: memref<?xf32>, %y: memref<?x2xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %m step %c1 {
    %s:2 = scf.for %p = %c0 to %m step %c1 iter_args(%a = %zero, %b = %zero) -> (f32, f32) {
      %v = memref.load %x[%p] : memref<?xf32>
      %n = arith.addf %a, %v : f32
      %o = arith.addf %b, %n : f32
      scf.yield %n, %o : f32, f32
    }
    memref.store %s#0, %y[%i, %c0] : memref<?x2xf32>
    memref.store %s#1, %y[%i, %c1] : memref<?x2xf32>
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: rows-to-subgroups: the loop does not count from 0 by 1
func.func @stride(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c1 to %m step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %x[%p] : memref<?xf32>
      %n = arith.addf %a, %v : f32
      scf.yield %n : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}
