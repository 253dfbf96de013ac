// RUN: not ditto-opt -p 'coarsen-rows' %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,coarsen-rows' %s 2>&1 | FileCheck %s --check-prefix=BLOCKS
// RUN: not ditto-opt -p 'rows-to-threads,coarsen-rows,coarsen-rows' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=4},coarsen-rows,share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=SHARE
// RUN: not ditto-opt -p 'coarsen-rows{rows=3}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'coarsen-rows{row=2}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'coarsen-row' %s 2>&1 | FileCheck %s --check-prefix=TYPO

// CHECK:  ditto-opt: not-applicable: coarsen-rows: needs rows mapped to threads or subgroups
// BLOCKS: ditto-opt: not-applicable: coarsen-rows: does not go with the grid split into blocks of threads
// TWICE:  ditto-opt: not-applicable: coarsen-rows: does not go with several rows a thread or subgroup
// SHARE:  ditto-opt: not-applicable: share-loads: does not go with several rows a thread or subgroup
// VALUE:  ditto-opt: bad-plan: coarsen-rows: rows=3 is not one of (1, 2, 4, 8, 16)
// OPTION: ditto-opt: bad-plan: coarsen-rows: no option 'row'; did you mean 'rows'?; it has rows
// TYPO:   ditto-opt: bad-plan: no pass is named 'coarsen-row'; did you mean 'coarsen-rows'?
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
