// RUN: ditto-opt --split-input-file --verify-diagnostics %s

func.func @type_changes(%x: f32, %shift: index) -> f64 {
  // expected-error @+1 {{expected 'f32' but got 'f64'}}
  %s = "ditto.group_reduce"(%x, %shift) {kind = "arith.addf"} : (f32, index) -> f64
  return %s : f64
}

// -----

func.func @shift_is_no_index(%x: f32, %shift: i32) -> f32 {
  // expected-error @+1 {{expected 'index' but got 'i32'}}
  %s = "ditto.group_reduce"(%x, %shift) {kind = "arith.addf"} : (f32, i32) -> f32
  return %s : f32
}

// -----

func.func @no_shift(%x: f32) -> f32 {
  // expected-error @+1 {{op expects exactly 2 operands, but got 1}}
  %s = "ditto.group_reduce"(%x) {kind = "arith.addf"} : (f32) -> f32
  return %s : f32
}

// -----

func.func @no_kind(%x: f32, %shift: index) -> f32 {
  // expected-error @+1 {{attribute "kind" is expected but not provided}}
  %s = "ditto.group_reduce"(%x, %shift) : (f32, index) -> f32
  return %s : f32
}

// -----

func.func @unknown_kind(%x: f32, %shift: index) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.group_reduce"(%x, %shift) {kind = "arith.sum"} : (f32, index) -> f32
  return %s : f32
}

// -----

func.func @no_result(%x: f32, %shift: index) {
  // expected-error @+1 {{op expects exactly 1 results, but got 0}}
  "ditto.group_reduce"(%x, %shift) {kind = "arith.addf"} : (f32, index) -> ()
  return
}

// -----

func.func @region(%x: f32, %shift: index) -> f32 {
  // expected-error @+1 {{op unexpected number of regions: expected 0 but got 1}}
  %s = "ditto.group_reduce"(%x, %shift) ({}) {kind = "arith.addf"} : (f32, index) -> f32
  return %s : f32
}
