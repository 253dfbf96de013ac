// accumulate-registers comes before what maps, widens or unrolls loops.
// RUN: not ditto-opt -p rows-to-threads,accumulate-registers %s 2>&1 | FileCheck %s --check-prefix=THREADS
// RUN: not ditto-opt -p unroll,accumulate-registers %s 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p vectorize,accumulate-registers %s 2>&1 | FileCheck %s --check-prefix=VECTORS

// THREADS:  ditto-opt: not-applicable: accumulate-registers: needs a parallel loop outside all others, not mapped yet
// UNROLLED: ditto-opt: not-applicable: accumulate-registers: does not go with the innermost reduction unrolled
// VECTORS:  ditto-opt: not-applicable: accumulate-registers: does not go with vectors over the dense columns
func.func @f(%B: memref<?x8xf32>, %C: memref<?x8xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %m step %c1 {
    scf.for %k = %c0 to %c8 step %c1 {
      %c = memref.load %C[%i, %k] : memref<?x8xf32>
      %s = scf.for %p = %c0 to %m step %c1 iter_args(%a = %c) -> (f32) {
        %b = memref.load %B[%p, %k] : memref<?x8xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}
