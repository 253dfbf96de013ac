// The widths of stored positions and coordinates are those of the loads in the kernel.
// RUN: sparseditto compile %s -o %t --plan 'set-encoding{coordinates=16},accumulate-registers,rows-to-threads,map-blocks' && FileCheck %s --check-prefix=C16 < %t/kernel.ptx
// RUN: sparseditto compile %s -o %t --plan 'set-encoding,accumulate-registers,rows-to-threads,map-blocks' && FileCheck %s --check-prefix=C32 < %t/kernel.ptx
// RUN: sparseditto compile %s -o %t --plan 'set-encoding{positions=64 coordinates=64},accumulate-registers,rows-to-threads,map-blocks' && FileCheck %s --check-prefix=C64 < %t/kernel.ptx
// RUN: sparseditto compile %s -o %t --plan 'set-encoding{positions=16 coordinates=16},accumulate-registers,rows-to-threads,map-blocks' && FileCheck %s --check-prefix=P16 < %t/kernel.ptx

// Positions of 32 bits, coordinates of 16.  They count up to 65535: no sign is extended.
// C16:     .visible .entry spmv(
// C16:     ld.global.nc.{{[bu]}}32
// C16:     ld.global.nc.{{[bu]}}16
// C16-NOT: .s16
// C16:     st.global

// C32:     .visible .entry spmv(
// C32-NOT: ld.global.nc.{{[bu]}}16
// C32-NOT: ld.global.nc.{{[bu]}}64
// C32:     ret;

// Both ends of the row, and the coordinate.
// C64:         .visible .entry spmv(
// C64-COUNT-3: ld.global.nc.{{(v2\.)?[bu]}}64
// C64:         ret;

// P16:         .visible .entry spmv(
// P16-COUNT-3: ld.global.nc.{{[bu]}}16
// P16:         ret;
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
