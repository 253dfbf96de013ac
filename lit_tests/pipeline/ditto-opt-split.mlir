// Each part is processed by itself: one that fails takes nothing from the others, and lines are those of the whole file.
// RUN: not ditto-opt --split-input-file -p rows-to-threads %s 2> %t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERRORS --input-file %t.err
// RUN: python %S/../Inputs/exits.py 2 ditto-opt --split-input-file -p rows-to-threads %s > /dev/null

// CHECK-LABEL: func.func @first
// CHECK:         scf.forall
// CHECK:       // -----
// CHECK-LABEL: func.func @last
// CHECK:         scf.forall
func.func @first(%x: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %m step %c1 {
    memref.store %zero, %x[%i] : memref<?xf32>
  }
  return
}

// -----

// ERRORS: ditto-opt: bad-input: {{.*}}ditto-opt-split.mlir:[[#@LINE+2]]:3: custom op 'arith.bogus' is unknown
func.func @syntax() {
  arith.bogus
}

// -----

// ERRORS-NEXT: ditto-opt: not-applicable: rows-to-threads: there is no loop nest
func.func @no_nest() {
  return
}

// -----

func.func @last(%x: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %m step %c1 {
    memref.store %zero, %x[%i] : memref<?xf32>
  }
  return
}
