// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s -o %t 2>&1 | FileCheck %s
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile - -o %t < /dev/null 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %t.none -o %t 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %S -o %t 2>&1 | FileCheck %s --check-prefix=FOLDER

// CHECK:  sparseditto: bad-input: {{.*}}no-function.mlir: has no func.func with a body
// EMPTY:  sparseditto: bad-input: -: has no func.func with a body
// FILE:   sparseditto: bad-input: {{.*}}.none: cannot be read: No such file or directory
// FOLDER: sparseditto: bad-input: {{.*}}errors: cannot be read: Is a directory
func.func private @spmv(tensor<?x?xf32>)
