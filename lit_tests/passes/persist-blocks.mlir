// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=128},persist-blocks,canonicalize,cse' %s | FileCheck %s
// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=128},persist-blocks{per-multiprocessor=2},canonicalize,cse' --target sm_80 %s | FileCheck %s --check-prefix=A100
// RUN: ditto-opt -p 'rows-to-threads,map-blocks,persist-blocks{blocks=7},canonicalize,cse' --target sm_89 %s | FileCheck %s --check-prefix=SEVEN
// RUN: ditto-opt -p 'rows-to-threads,map-blocks,bound-launch{registers=40},persist-blocks' %s | FileCheck %s --check-prefix=BOUND
// RUN: ditto-opt -p 'rows-to-threads,map-blocks,persist-blocks,bound-launch{registers=40}' %s | FileCheck %s --check-prefix=BOUND
// RUN: ditto-opt -p 'persist-blocks,canonicalize,cse' %S/Inputs/barrier.mlir | FileCheck %s --check-prefix=BARRIER
// RUN: ditto-opt -p 'rows-to-threads,map-blocks,persist-blocks,outline-kernels' %s | FileCheck %s --check-prefix=LAUNCH

// Eight blocks for each of 132 multiprocessors, or as many as there is work for; all threads of a block go round equally often.
// CHECK-LABEL: func.func @copy
// CHECK:         %[[BLOCKS:.*]] = arith.ceildivui %{{.*}}, %c128
// CHECK-NEXT:    %[[GRID:.*]] = arith.minsi %[[BLOCKS]], %c1056
// CHECK-NEXT:    scf.forall (%[[G:.*]]) in (%[[GRID]]) {
// CHECK-NEXT:      scf.forall (%[[T:.*]]) in (128) {
// CHECK-NEXT:        scf.for %[[B:.*]] = %[[G]] to %[[BLOCKS]] step %[[GRID]] {
// CHECK-NEXT:          %[[FIRST:.*]] = arith.muli %[[B]], %c128
// CHECK-NEXT:          arith.addi %[[FIRST]], %[[T]]
// CHECK:               memref.store
// CHECK-NOT:           gpu.barrier
// CHECK:             } {ditto.walks = "blocks"}
// CHECK-NEXT:      } {mapping = [#gpu.thread<linear_dim_0>]}
// CHECK-NEXT:    } {mapping = [#gpu.block<linear_dim_0>]}

// Another chip has another number of multiprocessors; a grid that is given is for any.
// A100: arith.minsi %{{.*}}, %c216
// SEVEN: arith.minsi %{{.*}}, %c7

// A bound on the launch stays on the loop over blocks, before or after.
// BOUND:      scf.for
// BOUND:      } {ditto.walks = "blocks"}
// BOUND-NEXT: } {mapping = [#gpu.thread<linear_dim_0>]}
// BOUND-NEXT: } {mapping = [#gpu.block<linear_dim_0>], nvvm.maxnreg = 40 : i32}

// Where the threads of a block wait for each other, they do so before the next round too.
// BARRIER:      scf.for
// BARRIER:        gpu.barrier
// BARRIER:        memref.store
// BARRIER-NEXT:   gpu.barrier
// BARRIER-NEXT: } {ditto.walks = "blocks"}

// LAUNCH: ditto.grid = ["min(ceildiv(arg2.dim0, 128), 1056)", "1", "1"]
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %n: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %n, %c0 : memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}

// The number of blocks is known: no more are launched.
// CHECK-LABEL: func.func @few
// CHECK:         scf.forall (%[[G:.*]]) in (3)
// CHECK:           scf.for %{{.*}} = %[[G]] to %c3 step %c3
func.func @few(%x: memref<300xf32>, %y: memref<300xf32>, %n: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = arith.constant 300 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<300xf32>
    memref.store %v, %y[%i] : memref<300xf32>
  }
  return
}
