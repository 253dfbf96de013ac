// A block is 32, 64, 128, 256, 512 or 1024 threads: whole warps, and as many as halving brings down to one.
// RUN: ditto-opt --split-input-file --verify-diagnostics %s

func.func @half_a_warp(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.addf", threads = 16 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @warp_and_a_half(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.addf", threads = 48 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @three_warps(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.addf", threads = 96 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @more_than_a_block(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.addf", threads = 2048 : i32} : (f32) -> f32
  return %s : f32
}

// -----

func.func @threads_is_no_integer(%x: f32) -> f32 {
  // expected-error @+1 {{'"128"' does not satisfy the constraint}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.addf", threads = "128"} : (f32) -> f32
  return %s : f32
}
