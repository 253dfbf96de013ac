// Doubles: eight bytes a warp in shared memory, and halves across lanes.
// RUN: sparseditto compile %s -o %t --plan 'set-encoding{coordinates=16},accumulate-registers,stream-entries,bin-rows{length=1073741824},rows-to-threads,map-blocks' && FileCheck %s < %t/kernel.ptx

// CHECK:          .visible .entry double(
// CHECK:          ld.global.nc.L1::no_allocate.b16
// CHECK:          ld.global.nc.L1::no_allocate.f64
// CHECK:          .visible .entry double_long(
// CHECK:          .shared .align 8 .b8 {{.*}}[64];
// CHECK-COUNT-10: shfl.sync.bfly.b32
// CHECK:          st.shared.{{[bf]}}64
// CHECK:          bar.sync 0;
// CHECK:          ld.shared.{{[bf]}}64
// CHECK:          {{atom|red}}.global.add.f64
func.func @double(%A: tensor<?x?xf64> {ditto.sparse}, %x: tensor<?xf64>, %y: tensor<?xf64>) -> tensor<?xf64> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf64>, tensor<?xf64>) outs(%y : tensor<?xf64>) -> tensor<?xf64>
  return %0 : tensor<?xf64>
}
