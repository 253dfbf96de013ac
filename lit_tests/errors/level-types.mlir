// Encodings that MLIR takes and nothing here can compile: one message, never a fault.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry coo -o %t 2>&1 | FileCheck %s --check-prefix=COO
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry coo_default -o %t 2>&1 | FileCheck %s --check-prefix=COO
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry structured -o %t 2>&1 | FileCheck %s --check-prefix=STRUCTURED
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry batch -o %t 2>&1 | FileCheck %s --check-prefix=BATCH
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry nonordered -o %t 2>&1 | FileCheck %s --check-prefix=NONORDERED

#COO = #sparse_tensor.encoding<{map = (i, j) -> (i : compressed(nonunique), j : singleton), posWidth = 32, crdWidth = 32}>
#COO_DEFAULT = #sparse_tensor.encoding<{map = (i, j) -> (i : compressed(nonunique), j : singleton)}>
#STRUCTURED = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j floordiv 4 : dense, j mod 4 : structured[2, 4])}>
#BATCH = #sparse_tensor.encoding<{map = (i, j) -> (i : batch, j : compressed)}>
#NONORDERED = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed(nonordered))}>

// COO: sparseditto: unsupported: {{.*}}'scf.while': only nests of counted loops over one sparse operand are compiled
func.func @coo(%A: tensor<?x?xf32, #COO>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #COO>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @coo_default(%A: tensor<?x?xf32, #COO_DEFAULT>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #COO_DEFAULT>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// STRUCTURED: sparseditto: unsupported: {{.*}}level type 'structured[2, 4]' is not supported
func.func @structured(%A: tensor<?x?xf32, #STRUCTURED>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #STRUCTURED>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// BATCH: sparseditto: unsupported: {{.*}}level type 'batch' is not supported
func.func @batch(%A: tensor<?x?xf32, #BATCH>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #BATCH>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// NONORDERED: sparseditto: unsupported: {{.*}}level type 'compressed(nonordered)' is not supported
func.func @nonordered(%A: tensor<?x?xf32, #NONORDERED>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #NONORDERED>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
