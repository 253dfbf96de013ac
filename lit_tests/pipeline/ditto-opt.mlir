// What mlir-opt users expect of ditto-opt.
// RUN: ditto-opt -p 'func.func(cse,rows-to-threads,canonicalize),cse' %s | FileCheck %s
// RUN: ditto-opt --pipeline='builtin.module(func.func(cse),rows-to-threads,any(canonicalize))' %s | FileCheck %s
// RUN: ditto-opt -p rows-to-threads - < %s | FileCheck %s
// RUN: ditto-opt -p rows-to-threads < %s | FileCheck %s
// RUN: ditto-opt -p rows-to-threads -o %t.out %s | count 0
// RUN: FileCheck %s < %t.out
// RUN: ditto-opt -p ' rows-to-threads , canonicalize{ max-iterations=2 } ' %s | FileCheck %s
// RUN: ditto-opt %s | FileCheck %s --check-prefix=NONE
// RUN: ditto-opt -p '' %s | FileCheck %s --check-prefix=NONE
// RUN: ditto-opt --mlir-print-op-generic %s | FileCheck %s --check-prefix=GENERIC
// RUN: ditto-opt --mlir-print-debuginfo %s | FileCheck %s --check-prefix=PLACES
// RUN: printf 'from dataclasses import dataclass\nfrom typing import ClassVar\nfrom sparseditto.passes.base import SchedulePass\nfrom sparseditto.passes.registry import register\n\n@register\n@dataclass(frozen=True)\nclass Mine(SchedulePass):\n    """Mark the nest."""\n\n    name: ClassVar[str] = "mine"\n\n    def run(self, nest, target):\n        from mlir import ir\n\n        nest.outer.op.attributes["mine"] = ir.StringAttr.get(target.chip)\n' > %t.mine.py
// RUN: ditto-opt --load %t.mine.py --target sm_80 -p mine,canonicalize %s | FileCheck %s --check-prefix=MINE

// Our passes and upstream's, nested or not, run in the order that is written.
// CHECK-LABEL: func.func @copy
// CHECK:         scf.forall (%[[I:.*]]) in (%{{.*}}) {
// CHECK-NEXT:      %[[V:.*]] = memref.load %{{.*}}[%[[I]]]
// CHECK-NEXT:      memref.store %[[V]]
// CHECK-NEXT:    } {mapping = [#gpu.thread<linear_dim_0>]}

// NONE:    scf.for
// GENERIC: "func.func"() <{
// GENERIC: "scf.for"(
// PLACES:  scf.for
// PLACES:  loc(#{{.*}})
// MINE:    } {mine = "sm_80"}
func.func @copy(%x: memref<?xf32>, %y: memref<?xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %m step %c1 {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
