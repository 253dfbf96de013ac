// RUN: rm -rf %t
// RUN: echo '{"schema": 2, "kernel": "", "steps": []}' > %t.schema.json
// RUN: echo '{"schema": ' > %t.broken.json
// RUN: echo '{"steps": []}' > %t.keys.json
// RUN: echo '{"schema": 1, "kernel": "", "steps": "unroll"}' > %t.steps.json
// RUN: sparseditto compile %S/../../examples/spmm.mlir -o %t.package
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan 'set-encoding,rows-to-thread' 2>&1 | FileCheck %s --check-prefix=PASS
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan 'set-encoding{formt=csr}' 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan 'set-encoding{format=coo}' 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan 'accumulate-registers,set-encoding' 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan 'set-encoding,canonicalize' 2>&1 | FileCheck %s --check-prefix=UPSTREAM
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan 'set-encoding,func.func(unroll)' 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan accumulate-registers 2>&1 | FileCheck %s --check-prefix=ENCODING
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan set-encoding 2>&1 | FileCheck %s --check-prefix=BLOCKS
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan 'set-encoding{format=csc},accumulate-registers' 2>&1 | FileCheck %s --check-prefix=SCATTER
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan %t.json 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan %t.schema.json 2>&1 | FileCheck %s --check-prefix=SCHEMA
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan %t.broken.json 2>&1 | FileCheck %s --check-prefix=JSON
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan %t.keys.json 2>&1 | FileCheck %s --check-prefix=KEYS
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan %t.steps.json 2>&1 | FileCheck %s --check-prefix=STEPS
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t --plan %t.package 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: test ! -e %t
// RUN: sparseditto compile %S/../../examples/spmm.mlir --plan %t.package -o %t

// PASS:     sparseditto: bad-plan: no pass is named 'rows-to-thread'; did you mean 'rows-to-threads'?
// OPTION:   sparseditto: bad-plan: set-encoding: no option 'formt'; did you mean 'format'?
// VALUE:    sparseditto: bad-plan: set-encoding: format=coo is not one of ('csr', 'csc', 'dcsr', 'dcsc', 'bsr')
// ORDER:    sparseditto: bad-plan: 'set-encoding' is a representation pass and stands after a schedule pass
// UPSTREAM: sparseditto: bad-plan: 'canonicalize' is upstream's; a plan names it 'mlir-canonicalize'
// NESTED:   sparseditto: bad-plan: 'func.func(…)' may not stand in a plan
// ENCODING: sparseditto: bad-plan: the plan gives 'A' no encoding; add set-encoding
// BLOCKS:   sparseditto: not-applicable: outline-kernels: the nest is not mapped to blocks of threads; add map-blocks
// SCATTER:  sparseditto: not-applicable: accumulate-registers: 
// FILE:     sparseditto: bad-input: {{.*}}.json: cannot be read: No such file or directory
// SCHEMA:   sparseditto: bad-plan: the plan is of schema 2; this release reads 1
// JSON:     sparseditto: bad-plan: {{.*}}.broken.json: is not JSON
// KEYS:     sparseditto: bad-plan: this is no plan (it has schema, kernel and steps)
// STEPS:    sparseditto: bad-plan: the plan's steps are no list of text
// KERNEL:   sparseditto: bad-plan: the plan is for kernel {{[0-9a-f]+}}, this one is {{[0-9a-f]+}}
func.func @spmv(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
