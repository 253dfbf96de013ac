// RUN: ditto-opt --split-input-file --verify-diagnostics %s

func.func @one_lane(%x: f32, %heads: i32) {
  // expected-error @+1 {{does not satisfy the constraint}}
  %a, %b = "ditto.segmented_scan"(%x, %heads) {kind = "arith.addf", lanes = 1 : i32} : (f32, i32) -> (f32, f32)
  return
}

// -----

func.func @unknown_kind(%x: f32, %heads: i32) {
  // expected-error @+1 {{does not satisfy the constraint}}
  %a, %b = "ditto.segmented_scan"(%x, %heads) {kind = "arith.sum", lanes = 8 : i32} : (f32, i32) -> (f32, f32)
  return
}

// -----

func.func @type_changes(%x: f32, %heads: i32) {
  // expected-error @+1 {{expected 'f32' but got 'f64'}}
  %a, %b = "ditto.segmented_scan"(%x, %heads) {kind = "arith.addf", lanes = 8 : i32} : (f32, i32) -> (f32, f64)
  return
}

// -----

func.func @heads_of_64_lanes(%x: f32, %heads: i64) {
  // expected-error @+1 {{expected 'i32' but got 'i64'}}
  %a, %b = "ditto.segmented_scan"(%x, %heads) {kind = "arith.addf", lanes = 8 : i32} : (f32, i64) -> (f32, f32)
  return
}

// -----

func.func @no_lanes(%x: f32, %heads: i32) {
  // expected-error @+1 {{attribute "lanes" is expected but not provided}}
  %a, %b = "ditto.segmented_scan"(%x, %heads) {kind = "arith.addf"} : (f32, i32) -> (f32, f32)
  return
}

// -----

func.func @one_result(%x: f32, %heads: i32) {
  // expected-error @+1 {{op expects exactly 2 results, but got 1}}
  %a = "ditto.segmented_scan"(%x, %heads) {kind = "arith.addf", lanes = 8 : i32} : (f32, i32) -> f32
  return
}
