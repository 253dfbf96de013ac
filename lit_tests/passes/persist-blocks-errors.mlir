// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,persist-blocks' --target sm_89 %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks{threads=1024},persist-blocks{per-multiprocessor=4}' %s 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not ditto-opt -p 'rows-to-threads,persist-blocks' %s 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,persist-blocks,persist-blocks' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'persist-blocks{per-multiprocessor=5}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'persist-blocks{blocks=-1}' %s 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not ditto-opt -p 'persist-blocks{grid=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'persist-block' %s 2>&1 | FileCheck %s --check-prefix=TYPO

// CHECK:    ditto-opt: not-applicable: persist-blocks: the multiprocessors of sm_89 are not known, its GPUs differ; give blocks=…
// MANY:     ditto-opt: not-applicable: persist-blocks: 4 blocks of 1024 threads exceed the 2048 of a multiprocessor
// ORDER:    ditto-opt: not-applicable: persist-blocks: needs the grid split into blocks of threads
// TWICE:    ditto-opt: not-applicable: persist-blocks: does not go with a fixed number of blocks that take the work in turn
// VALUE:    ditto-opt: bad-plan: persist-blocks: per-multiprocessor=5 is not one of (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
// NEGATIVE: ditto-opt: bad-plan: persist-blocks: blocks=-1: a grid has 1 to 2147483647 blocks (0: by multiprocessors)
// OPTION:   ditto-opt: bad-plan: persist-blocks: no option 'grid'; it has per-multiprocessor, blocks
// TYPO:     ditto-opt: bad-plan: no pass is named 'persist-block'; did you mean 'persist-blocks'?
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
