// RUN: ditto-opt -p lower-nontemporal %s | FileCheck %s
// RUN: ditto-opt -p lower-nontemporal,lower-nontemporal %s | FileCheck %s

// Each type has its letter for the register that holds it.
// CHECK-LABEL: llvm.func @types(
// CHECK-SAME:    %[[P:[a-z0-9]*]]: !llvm.ptr<1>)
// CHECK-NEXT:    %[[A:.*]] = llvm.inline_asm "ld.global.nc.L1::no_allocate.f32 $0, [$1];", "=f,l" %[[P]] : (!llvm.ptr<1>) -> f32
// CHECK-NEXT:    llvm.inline_asm "ld.global.nc.L1::no_allocate.f64 $0, [$1];", "=d,l" %[[P]] : (!llvm.ptr<1>) -> f64
// CHECK-NEXT:    llvm.inline_asm "ld.global.nc.L1::no_allocate.b16 $0, [$1];", "=h,l" %[[P]] : (!llvm.ptr<1>) -> i16
// CHECK-NEXT:    llvm.inline_asm "ld.global.nc.L1::no_allocate.b32 $0, [$1];", "=r,l" %[[P]] : (!llvm.ptr<1>) -> i32
// CHECK-NEXT:    llvm.inline_asm "ld.global.nc.L1::no_allocate.b64 $0, [$1];", "=l,l" %[[P]] : (!llvm.ptr<1>) -> i64
// CHECK-NEXT:    llvm.return %[[A]]
llvm.func @types(%p: !llvm.ptr<1>) -> f32 {
  %a = llvm.load %p {nontemporal} : !llvm.ptr<1> -> f32
  %b = llvm.load %p {nontemporal} : !llvm.ptr<1> -> f64
  %c = llvm.load %p {nontemporal} : !llvm.ptr<1> -> i16
  %d = llvm.load %p {nontemporal} : !llvm.ptr<1> -> i32
  %e = llvm.load %p {nontemporal} : !llvm.ptr<1> -> i64
  llvm.return %a : f32
}

// Left alone: loads without the mark, from other memories, and of what no single register holds.
// CHECK-LABEL:   llvm.func @others(
// CHECK-NEXT:      llvm.load %{{.*}} : !llvm.ptr<1> -> f32
// CHECK-NEXT:      llvm.load %{{.*}} {nontemporal} : !llvm.ptr<3> -> f32
// CHECK-NEXT:      llvm.load %{{.*}} {nontemporal} : !llvm.ptr -> f32
// CHECK-NEXT:      llvm.load %{{.*}} {nontemporal} : !llvm.ptr<1> -> vector<4xf32>
// CHECK-NEXT:      llvm.return
llvm.func @others(%p: !llvm.ptr<1>, %q: !llvm.ptr<3>, %r: !llvm.ptr) {
  %a = llvm.load %p : !llvm.ptr<1> -> f32
  %b = llvm.load %q {nontemporal} : !llvm.ptr<3> -> f32
  %c = llvm.load %r {nontemporal} : !llvm.ptr -> f32
  %d = llvm.load %p {nontemporal} : !llvm.ptr<1> -> vector<4xf32>
  llvm.return
}

// Inside a gpu.module, and inside branches.
// CHECK-LABEL: gpu.module @kernels
// CHECK:         llvm.cond_br
// CHECK:         llvm.inline_asm "ld.global.nc.L1::no_allocate.f32
// CHECK-NOT:     llvm.load
gpu.module @kernels {
  llvm.func @branch(%p: !llvm.ptr<1>, %c: i1) {
    llvm.cond_br %c, ^then, ^end
  ^then:
    %a = llvm.load %p {nontemporal} : !llvm.ptr<1> -> f32
    llvm.br ^end
  ^end:
    llvm.return
  }
}
