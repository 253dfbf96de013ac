// RUN: ditto-opt -p lower-keep %s | FileCheck %s
// RUN: ditto-opt -p lower-keep,lower-keep %s | FileCheck %s
// RUN: not ditto-opt -p 'lower-keep{level=2}' %s 2>&1 | FileCheck %s --check-prefix=OPTION

// OPTION: ditto-opt: bad-plan: lower-keep: no option 'level'; it has none

// One policy for all loads that an argument leads to, vectors included.
// CHECK-LABEL: llvm.func @types(
// CHECK-SAME:    %[[P:[a-z0-9]*]]: !llvm.ptr<1>, %{{[a-z0-9]*}}: !llvm.ptr<1>, %[[N:[a-z0-9]*]]: i64)
// CHECK-NOT:     ditto.keep
// CHECK:         %[[K:.*]] = llvm.inline_asm "createpolicy.fractional.L2::evict_last.b64 $0, 1.0;", "=l" : () -> i64
// CHECK:         llvm.inline_asm "ld.global.nc.L2::cache_hint.f32 $0, [$1], $2;", "=f,l,l" %[[P]], %[[K]]
// CHECK:         %[[Q:.*]] = llvm.getelementptr %[[P]][%[[N]]]
// CHECK:         llvm.inline_asm "ld.global.nc.L2::cache_hint.v2.f64 {$0, $1}, [$2], $3;", "=d,=d,l,l" %[[Q]], %[[K]]
// CHECK:         %[[H:.*]] = llvm.inline_asm "ld.global.nc.L2::cache_hint.b16 $0, [$1], $2;", "=h,l,l" %[[Q]], %[[K]] {{.*}} -> i16
// CHECK:         llvm.bitcast %[[H]] : i16 to f16
// CHECK-NOT:     createpolicy
llvm.func @types(%p: !llvm.ptr<1>, %q: !llvm.ptr<1>, %n: i64) -> f32 attributes {ditto.keep = array<i32: 0>} {
  %a = llvm.load %p : !llvm.ptr<1> -> f32
  %at = llvm.getelementptr %p[%n] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f64
  %b = llvm.load %at : !llvm.ptr<1> -> vector<2xf64>
  %c = llvm.load %at : !llvm.ptr<1> -> f16
  %o = llvm.load %q : !llvm.ptr<1> -> f32
  llvm.return %a : f32
}

// Left alone: what other arguments lead to, and what PTX does not load at once.
// CHECK-LABEL: llvm.func @others(
// CHECK-NOT:     inline_asm
// CHECK:         llvm.load %{{.*}} : !llvm.ptr<1> -> vector<8xf32>
// CHECK-NEXT:    llvm.load %{{.*}} : !llvm.ptr<1> -> i8
// CHECK-NEXT:    llvm.load %{{.*}} : !llvm.ptr<1> -> f32
// CHECK-NEXT:    llvm.return
llvm.func @others(%p: !llvm.ptr<1>, %q: !llvm.ptr<1>) attributes {ditto.keep = array<i32: 0>} {
  %a = llvm.load %p : !llvm.ptr<1> -> vector<8xf32>
  %b = llvm.load %p : !llvm.ptr<1> -> i8
  %c = llvm.load %q : !llvm.ptr<1> -> f32
  llvm.return
}
