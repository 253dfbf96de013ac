// RUN: ditto-opt -p 'rows-to-threads,map-blocks{threads=128},overlap-launch' %s | FileCheck %s --check-prefix=NEST
// RUN: sparseditto compile %S/../../examples/spmv.mlir -o %t --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks{threads=128},persist-blocks,overlap-launch'
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx
// RUN: FileCheck %s --check-prefix=LAUNCH < %t/package.json
// RUN: sparseditto compile %S/../../examples/spmv.mlir -o %t --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks{threads=128},overlap-launch,persist-blocks'
// RUN: FileCheck %s --check-prefix=PTX < %t/kernel.ptx

// The kernel waits before it reads anything, and says at once that the next one may start.
// NEST:   func.func @copy({{.*}}) attributes {ditto.overlap} {
// PTX:     .visible .entry spmv(
// PTX-NOT: ld.global
// PTX:     griddepcontrol.wait;
// PTX-NEXT: griddepcontrol.launch_dependents;
// PTX:     ld.global
// LAUNCH:  "overlap": true
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
