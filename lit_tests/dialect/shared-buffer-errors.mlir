// RUN: ditto-opt --split-input-file --verify-diagnostics %s

func.func @no_memory() {
  // expected-error @+1 {{expected base type 'builtin.memref' but got 'builtin.f32'}}
  %b = "ditto.shared_buffer"() : () -> f32
  return
}

// -----

func.func @size(%n: index) {
  // expected-error @+1 {{op expects exactly 0 operands, but got 1}}
  %b = "ditto.shared_buffer"(%n) : (index) -> memref<8xf32, 3>
  return
}

// -----

func.func @nothing() {
  // expected-error @+1 {{op expects exactly 1 results, but got 0}}
  "ditto.shared_buffer"() : () -> ()
  return
}

// -----

func.func @fence_of_a_value(%x: f32) {
  // expected-error @+1 {{op expects exactly 0 operands, but got 1}}
  "ditto.fence"(%x) : (f32) -> ()
  return
}

// -----

func.func @fence_with_a_result() -> f32 {
  // expected-error @+1 {{op expects exactly 0 results, but got 1}}
  %x = "ditto.fence"() : () -> f32
  return %x : f32
}

// -----

func.func @fence_around_something() {
  // expected-error @+1 {{op unexpected number of regions: expected 0 but got 1}}
  "ditto.fence"() ({}) : () -> ()
  return
}
