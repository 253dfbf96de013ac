// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,bound-launch' %s 2>&1 | FileCheck %s --check-prefix=EITHER
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,bound-launch{blocks=8 registers=32}' %s 2>&1 | FileCheck %s --check-prefix=EITHER
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks{threads=1024},bound-launch{blocks=4}' %s 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not ditto-opt -p 'rows-to-threads,bound-launch{blocks=8}' %s 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not ditto-opt -p 'bound-launch{blocks=7}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'bound-launch{register=32}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'bound-lunch' %s 2>&1 | FileCheck %s --check-prefix=TYPO

// EITHER: ditto-opt: not-applicable: bound-launch: give either blocks or registers
// MANY:   ditto-opt: not-applicable: bound-launch: 4 blocks of 1024 threads exceed the 2048 of a multiprocessor
// ORDER:  ditto-opt: not-applicable: bound-launch: needs the grid split into blocks of threads
// VALUE:  ditto-opt: bad-plan: bound-launch: blocks=7 is not one of (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
// OPTION: ditto-opt: bad-plan: bound-launch: no option 'register'; did you mean 'registers'?; it has blocks, registers
// TYPO:   ditto-opt: bad-plan: no pass is named 'bound-lunch'; did you mean 'bound-launch'?
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
