// RUN: not ditto-opt -p map-blocks %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'map-blocks{threads=100}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'map-blocks{blocks=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'map-block' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,map-blocks' %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p rows-to-threads --target sm_91 %s 2>&1 | FileCheck %s --check-prefix=TARGET

// CHECK:  ditto-opt: not-applicable: map-blocks: needs rows mapped to threads or subgroups
// VALUE:  ditto-opt: bad-plan: map-blocks: threads=100 is not one of (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
// OPTION: ditto-opt: bad-plan: map-blocks: no option 'blocks'; it has threads
// TYPO:   ditto-opt: bad-plan: no pass is named 'map-block'; did you mean 'map-blocks'?
// TWICE:  ditto-opt: not-applicable: map-blocks: does not go with the grid split into blocks of threads
// TARGET: ditto-opt: bad-input: 'sm_91' is no known target; did you mean 'sm_90'?
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
