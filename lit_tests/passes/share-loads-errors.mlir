// RUN: not ditto-opt -p 'rows-to-subgroups,share-loads' --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'rows-to-threads,share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=THREAD
// RUN: not ditto-opt -p 'share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not ditto-opt -p 'rows-to-subgroups{share=entries},share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=ENTRIES
// RUN: not ditto-opt -p 'rows-to-subgroups{lanes=8 groups=8},share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=ENTRIES
// RUN: not ditto-opt -p 'rows-to-subgroups,unroll,share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=UNROLLED
// RUN: not ditto-opt -p 'rows-to-subgroups,map-blocks,share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=BLOCKS
// RUN: not ditto-opt -p 'rows-to-subgroups,share-loads,share-loads' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not ditto-opt -p 'share-loads{lanes=8}' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'share-loads{ahead=2}' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ditto-opt -p 'share-load' %S/share-loads.mlir 2>&1 | FileCheck %s --check-prefix=TYPO

// THREAD:   ditto-opt: not-applicable: share-loads: a row belongs to one thread; share it among lanes (rows-to-subgroups{share=columns})
// ORDER:    ditto-opt: not-applicable: share-loads: needs rows mapped to threads or subgroups
// ENTRIES:  ditto-opt: not-applicable: share-loads: the lanes share the entries, so each loads its own already
// UNROLLED: ditto-opt: not-applicable: share-loads: does not go with the innermost reduction unrolled
// BLOCKS:   ditto-opt: not-applicable: share-loads: does not go with the grid split into blocks of threads
// TWICE:    ditto-opt: not-applicable: share-loads: does not go with stored entries loaded by the lanes of a row together
// OPTION:   ditto-opt: bad-plan: share-loads: no option 'lanes'; it has ahead
// VALUE:    ditto-opt: bad-plan: share-loads: ahead=2: say true or false
// TYPO:     ditto-opt: bad-plan: no pass is named 'share-load'; did you mean 'share-loads'?

#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: not-applicable: share-loads: an entry's position is used for more than its coordinate and value
func.func @position(%A: tensor<?x?xf32, #CSR>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #CSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c8 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %v = memref.load %val[%p] : memref<?xf32>
        %b = memref.load %B[%p, %k] : memref<?x8xf32>
        %t = arith.mulf %v, %b : f32
        %n = arith.addf %a, %t : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}

// -----

// Coordinate 0 is there when any entry is, but what is computed from it need not be.
#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: not-applicable: share-loads: an address is computed from a coordinate
func.func @beside(%A: tensor<?x?xf32, #CSR>, %B: memref<?x8xf32>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #CSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  %crd = sparse_tensor.coordinates %A {level = 1 : index} : tensor<?x?xf32, #CSR> to memref<?xindex>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c8 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %j = memref.load %crd[%p] : memref<?xindex>
        %left = arith.subi %j, %c1 : index
        %b = memref.load %B[%left, %k] : memref<?x8xf32>
        %n = arith.addf %a, %b : f32
        scf.yield %n : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}

// -----

#BSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK: not-applicable: share-loads: needs one reduction, over stored entries that are no blocks
func.func @blocks(%A: tensor<?x?xf32, #BSR>, %C: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = sparse_tensor.lvl %A, %c0 : tensor<?x?xf32, #BSR>
  %pos = sparse_tensor.positions %A {level = 1 : index} : tensor<?x?xf32, #BSR> to memref<?xindex>
  %val = sparse_tensor.values %A : tensor<?x?xf32, #BSR> to memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %lo = memref.load %pos[%i] : memref<?xindex>
    %i1 = arith.addi %i, %c1 : index
    %hi = memref.load %pos[%i1] : memref<?xindex>
    scf.for %k = %c0 to %c8 step %c1 {
      %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f32) {
        %q = arith.muli %p, %c2 : index
        %u = scf.for %r = %c0 to %c2 step %c1 iter_args(%d = %a) -> (f32) {
          %at = arith.addi %q, %r : index
          %v = memref.load %val[%at] : memref<?xf32>
          %n = arith.addf %d, %v : f32
          scf.yield %n : f32
        }
        scf.yield %u : f32
      }
      memref.store %s, %C[%i, %k] : memref<?x8xf32>
    }
  }
  return
}
