// RUN: not ditto-opt --target sm_89 -p 'rows-to-threads,map-blocks,overlap-launch' %s 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not ditto-opt -p 'rows-to-threads,overlap-launch' %s 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not ditto-opt -p 'rows-to-threads,map-blocks,overlap-launch{blocks=8}' %s 2>&1 | FileCheck %s --check-prefix=OPTION

// CHIP:   ditto-opt: not-applicable: overlap-launch: sm_89 has no kernels that wait for each other; sm_90 and later have
// ORDER:  ditto-opt: not-applicable: overlap-launch: needs the grid split into blocks of threads
// OPTION: ditto-opt: bad-plan: overlap-launch: no option 'blocks'
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
