// RUN: ditto-opt --split-input-file --verify-diagnostics %s

func.func @type_changes(%x: f32) -> f64 {
  // expected-error @+1 {{expected 'f32' but got 'f64'}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.addf", threads = 128 : i32} : (f32) -> f64
  return %s : f64
}

// -----

func.func @no_threads(%x: f32) -> f32 {
  // expected-error @+1 {{attribute "threads" is expected but not provided}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.addf"} : (f32) -> f32
  return %s : f32
}

// -----

func.func @no_kind(%x: f32) -> f32 {
  // expected-error @+1 {{attribute "kind" is expected but not provided}}
  %s = "ditto.block_reduce"(%x) {threads = 128 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @kind_is_no_string(%x: f32) -> f32 {
  // expected-error @+1 {{'1 : i32' does not satisfy the constraint}}
  %s = "ditto.block_reduce"(%x) {kind = 1 : i32, threads = 128 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @two_values(%x: f32) -> f32 {
  // expected-error @+1 {{op expects exactly 1 operands, but got 2}}
  %s = "ditto.block_reduce"(%x, %x) {kind = "arith.addf", threads = 128 : i32} : (f32, f32) -> f32
  return %s : f32
}

// -----

func.func @no_value() -> f32 {
  // expected-error @+1 {{op expects exactly 1 operands, but got 0}}
  %s = "ditto.block_reduce"() {kind = "arith.addf", threads = 128 : i32} : () -> f32
  return %s : f32
}

// -----

func.func @no_result(%x: f32) {
  // expected-error @+1 {{op expects exactly 1 results, but got 0}}
  "ditto.block_reduce"(%x) {kind = "arith.addf", threads = 128 : i32} : (f32) -> ()
  return
}

// -----

func.func @region(%x: f32) -> f32 {
  // expected-error @+1 {{op unexpected number of regions: expected 0 but got 1}}
  %s = "ditto.block_reduce"(%x) ({}) {kind = "arith.addf", threads = 128 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @unknown(%x: f32) -> f32 {
  // expected-error @+1 {{unregistered operation 'ditto.block_sum' found in dialect ('ditto')}}
  %s = "ditto.block_sum"(%x) : (f32) -> f32
  return %s : f32
}
