// RUN: rm -rf %t
// RUN: echo 'import nosuch' > %t.import.py
// RUN: printf 'from sparseditto.passes.base import SchedulePass\nfrom sparseditto.passes.registry import register\n@register\nclass Mine(SchedulePass):\n    name = "unroll"\n' > %t.name.py
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o /dev/null/x 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --dump-ir /dev/null/x 2>&1 | FileCheck %s --check-prefix=DUMP
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --print-ir-after=S33 2>&1 | FileCheck %s --check-prefix=STAGE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --target sm_91 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --load %t.py 2>&1 | FileCheck %s --check-prefix=LOAD
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --load %t.import.py 2>&1 | FileCheck %s --check-prefix=IMPORT
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --load %t.name.py 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --paln x 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: test ! -e %t

// OUTPUT:  sparseditto: bad-input: /dev/null/x: cannot write there: 
// DUMP:    sparseditto: bad-input: /dev/null/x: cannot write there: Not a directory
// STAGE:   sparseditto: bad-input: no stage is named 'S33'; did you mean 'S3'?; there are S0, S1, S2, S3, S4, S5 and all
// TARGET:  sparseditto: bad-input: 'sm_91' is no known target; did you mean 'sm_90'?
// LOAD:    sparseditto: bad-input: {{.*}}.py: is no Python file to load passes from
// IMPORT:  sparseditto: bad-input: {{.*}}.import.py: cannot be loaded: ModuleNotFoundError: No module named 'nosuch'
// NAME:    sparseditto: bad-plan: sparseditto_plugin_arguments.mlir.tmp.name registers a pass 'unroll', which sparseditto.passes.schedule.unroll has already
// UNKNOWN: sparseditto: bad-input: unrecognized arguments: --paln x
func.func @spmm(%Matrix: tensor<?x?xf32> {ditto.sparse}, %B: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %Matrix, %c0 : tensor<?x?xf32>
  %k = tensor.dim %B, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %k) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %C = linalg.matmul ins(%Matrix, %B : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %C : tensor<?x?xf32>
}
