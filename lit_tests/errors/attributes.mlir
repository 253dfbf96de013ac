// Attributes of ours that say nothing, and a fill that is no constant.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry name -o %t 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry fill -o %t 2>&1 | FileCheck %s --check-prefix=FILL

// NAME: sparseditto: {{bad-input|unsupported}}: {{.*}}ditto.name
func.func @name(%A: tensor<?x?xf32> {ditto.sparse, ditto.name = 3 : i32}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @fill(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>, %s: f32) -> tensor<?xf32> {
  // FILL: sparseditto: unsupported: {{.*}}attributes.mlir:{{[0-9]+}}:{{[0-9]+}}: {{.*}}linalg.fill of a constant
  %init = linalg.fill ins(%s : f32) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%init : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
