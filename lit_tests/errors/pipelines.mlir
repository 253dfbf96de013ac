// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'cse,func.func(cse,unroll' %s 2>&1 | FileCheck %s --check-prefix=PAREN --strict-whitespace
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'cse,unroll{factor=2' %s 2>&1 | FileCheck %s --check-prefix=BRACE --strict-whitespace
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'cse,,unroll' %s 2>&1 | FileCheck %s --check-prefix=NAME --strict-whitespace
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'unroll)' %s 2>&1 | FileCheck %s --check-prefix=EXTRA --strict-whitespace
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'unroll{factor=2}cse' %s 2>&1 | FileCheck %s --check-prefix=COMMA --strict-whitespace
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p canonicalise %s 2>&1 | FileCheck %s --check-prefix=UPSTREAM
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'func.func(csee)' %s 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'xyzzy' %s 2>&1 | FileCheck %s --check-prefix=FAR
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'rows-to-threads,cse{foo=1}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'sparsification{parallelization-strategy=most}' %s 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -p 'func.func(convert-gpu-to-nvvm)' %s 2>&1 | FileCheck %s --check-prefix=ANCHOR
// RUN: python %S/../Inputs/exits.py 2 ditto-opt %s.none 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: python %S/../Inputs/exits.py 2 ditto-opt -o /dev/null/x %s 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: python %S/../Inputs/exits.py 2 ditto-opt --pipline=cse %s 2>&1 | FileCheck %s --check-prefix=ARGUMENT

// A caret stands under the place.
//      PAREN:ditto-opt: bad-plan: pipeline: ')' is missing
// PAREN-NEXT:  cse,func.func(cse,unroll
// PAREN-NEXT:                          ^{{$}}
//      BRACE:ditto-opt: bad-plan: pipeline: this '{' is not closed
// BRACE-NEXT:  cse,unroll{factor=2
// BRACE-NEXT:            ^{{$}}
//       NAME:ditto-opt: bad-plan: pipeline: a pass name is missing
//  NAME-NEXT:  cse,,unroll
//  NAME-NEXT:      ^{{$}}
//      EXTRA:ditto-opt: bad-plan: pipeline: unexpected ')'
// EXTRA-NEXT:  unroll)
// EXTRA-NEXT:        ^{{$}}
//      COMMA:ditto-opt: bad-plan: pipeline: unexpected 'c'
// COMMA-NEXT:  unroll{factor=2}cse
// COMMA-NEXT:                  ^{{$}}

// All names and options are checked before a pass runs: the first message is about them although rows-to-threads cannot run.
// UPSTREAM: ditto-opt: bad-plan: no pass is named 'canonicalise'; did you mean 'canonicalize'?
// NESTED:   ditto-opt: bad-plan: no pass is named 'csee'; did you mean 'cse'?
// FAR:      ditto-opt: bad-plan: no pass is named 'xyzzy'{{$}}
// OPTION:   ditto-opt: bad-plan: cse{foo=1}: {{.*}}no such option foo
// VALUE:    ditto-opt: bad-plan: sparsification{parallelization-strategy=most}: {{.*}}Cannot find option named 'most'
// ANCHOR:   ditto-opt: bad-plan: func.func(convert-gpu-to-nvvm): Can't add pass 'ConvertGpuOpsToNVVMOps' restricted to 'gpu.module'
// FILE:     ditto-opt: bad-input: {{.*}}pipelines.mlir.none: cannot be read: No such file or directory
// OUTPUT:   ditto-opt: bad-input: /dev/null/x: cannot write there: Not a directory
// ARGUMENT: ditto-opt: bad-input: unrecognized arguments: --pipline=cse
func.func @f() {
  return
}
