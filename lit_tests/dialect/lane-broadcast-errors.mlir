// RUN: ditto-opt --split-input-file --verify-diagnostics %s

func.func @six_lanes(%x: f32, %k: index) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.lane_broadcast"(%x, %k) {lanes = 6 : i32} : (f32, index) -> f32
  return %s : f32
}

// -----

func.func @one_lane(%x: f32, %k: index) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.lane_broadcast"(%x, %k) {lanes = 1 : i32} : (f32, index) -> f32
  return %s : f32
}

// -----

func.func @type_changes(%x: f32, %k: index) -> f64 {
  // expected-error @+1 {{expected 'f32' but got 'f64'}}
  %s = "ditto.lane_broadcast"(%x, %k) {lanes = 8 : i32} : (f32, index) -> f64
  return %s : f64
}

// -----

func.func @no_index(%x: f32, %k: i32) -> f32 {
  // expected-error @+1 {{expected 'index' but got 'i32'}}
  %s = "ditto.lane_broadcast"(%x, %k) {lanes = 8 : i32} : (f32, i32) -> f32
  return %s : f32
}

// -----

func.func @no_lane(%x: f32) -> f32 {
  // expected-error @+1 {{op expects exactly 2 operands, but got 1}}
  %s = "ditto.lane_broadcast"(%x) {lanes = 8 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @no_lanes(%x: f32, %k: index) -> f32 {
  // expected-error @+1 {{attribute "lanes" is expected but not provided}}
  %s = "ditto.lane_broadcast"(%x, %k) : (f32, index) -> f32
  return %s : f32
}
