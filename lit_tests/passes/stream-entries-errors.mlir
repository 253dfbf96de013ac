// RUN: not ditto-opt -p stream-entries --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'stream-entries{cache=l2}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'stream-entrys' %s 2>&1 | FileCheck %s --check-prefix=TYPO
// RUN: not sparseditto compile %S/../../examples/spmv.mlir --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks,stream-entries' 2>&1 | FileCheck %s --check-prefix=ORDER

// OPTION: ditto-opt: bad-plan: stream-entries: no option 'cache'; it has none
// TYPO:   ditto-opt: bad-plan: no pass is named 'stream-entrys'; did you mean 'stream-entries'?
// ORDER:  sparseditto: bad-plan: 'stream-entries' is a schedule pass and stands after a mapping pass

// CHECK: ditto-opt: not-applicable: stream-entries: the nest loads no entries
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

// CHECK: ditto-opt: not-applicable: stream-entries: needs reductions in registers, parallel loops outside them
func.func @memory(%x: memref<?x?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %a = memref.load %x[%i, %j] : memref<?x?xf32>
      %b = memref.load %y[%i] : memref<?xf32>
      %s = arith.addf %b, %a : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}

// -----

// CHECK: ditto-opt: not-applicable: stream-entries: there is no loop nest
func.func @no_nest() {
  return
}
