// Diagnostics that came against those that the comments expect; nothing else is printed.
// RUN: ditto-opt --split-input-file --verify-diagnostics -p rows-to-threads %s | count 0
// RUN: sed 's/is unknown/is known/; s/there is no loop/there is one loop/; s/@+4/@+5/' %s > %t.mlir
// RUN: python %S/../Inputs/exits.py 2 ditto-opt --split-input-file --verify-diagnostics -p rows-to-threads %t.mlir 2>&1 | FileCheck %s

// CHECK: verify.mlir{{.*}}:[[#@LINE+3]]: expected error "custom op 'arith.bogus' is known" was not produced
// CHECK: verify.mlir{{.*}}:[[#@LINE+2]]: unexpected error: custom op 'arith.bogus' is unknown
func.func @syntax() {
  arith.bogus // expected-error {{custom op 'arith.bogus' is unknown}}
}

// -----

// CHECK: expected error "there is one loop nest" was not produced
// CHECK: unexpected error: there is no loop nest
// expected-error @unknown {{there is no loop nest}}
func.func @no_nest() {
  return
}

// -----

// CHECK: verify.mlir{{.*}}:[[#@LINE+8]]: expected error "'arith.addf' op requires the same type" was not produced
// CHECK: verify.mlir{{.*}}:[[#@LINE+6]]: unexpected error: 'arith.addf' op requires the same type
func.func @verifier(%x: f32, %y: f64) {
  // expected-error @+4 {{'arith.addf' op requires the same type}}


  // A line away.
  "arith.addf"(%x, %y) : (f32, f64) -> f32
  return
}
