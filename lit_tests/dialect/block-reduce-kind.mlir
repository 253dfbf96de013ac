// RUN: ditto-opt --verify-diagnostics %s

func.func @unknown_kind(%x: f32) -> f32 {
  // expected-error @+1 {{does not satisfy the constraint}}
  %s = "ditto.block_reduce"(%x) {kind = "arith.sum", threads = 128 : i32} : (f32) -> f32
  return %s : f32
}
