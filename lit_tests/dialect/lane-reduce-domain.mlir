// A group is 1, 2, 4, 8, 16 or 32 lanes, and what it computes is one of the combiners that passes know.
// RUN: ditto-opt --split-input-file --verify-diagnostics %s

func.func @six_lanes(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.lane_reduce"(%x) {kind = "arith.addf", lanes = 6 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @more_than_a_warp(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.lane_reduce"(%x) {kind = "arith.addf", lanes = 64 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @unknown_kind(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.lane_reduce"(%x) {kind = "arith.sum", lanes = 8 : i32} : (f32) -> f32
  return %s : f32
}
