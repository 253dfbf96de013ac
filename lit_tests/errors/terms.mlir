// The term must be 0 where nothing is stored, and must not read the sum; else no nest over stored entries computes it.
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry dense_square -o %t 2>&1 | FileCheck %s --check-prefix=TERM
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry dense -o %t 2>&1 | FileCheck %s --check-prefix=TERM
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry constant -o %t 2>&1 | FileCheck %s --check-prefix=TERM
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry difference -o %t 2>&1 | FileCheck %s --check-prefix=TERM
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry twice -o %t 2>&1 | FileCheck %s --check-prefix=OLD
// RUN: python %S/../Inputs/exits.py 2 sparseditto compile %s --entry old_value -o %t 2>&1 | FileCheck %s --check-prefix=OLD
// RUN: sparseditto compile %s --entry kept -o %t

// TERM: sparseditto: unsupported: {{.*}}terms.mlir:{{[0-9]+}}:{{[0-9]+}}: the term is not 0 where the sparse operand stores nothing
// OLD: sparseditto: unsupported: {{.*}}terms.mlir:{{[0-9]+}}:{{[0-9]+}}: the output's old value is used for more than to be added to

#matrix = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i, j) -> (i)>
#columns = affine_map<(i, j) -> (j)>
#trait = {indexing_maps = [#matrix, #columns, #rows], iterator_types = ["parallel", "reduction"]}

func.func @dense_square(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic #trait ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %b, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @dense(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic #trait ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %o, %b : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @constant(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic #trait ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %k = arith.constant 2.0 : f32
    %s = arith.addf %o, %k : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @difference(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic #trait ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.subf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @twice(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic #trait ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %o, %o : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @old_value(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic #trait ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %o, %a : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

func.func @kept(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic #trait ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %d = arith.subf %b, %one : f32
    %n = arith.negf %a : f32
    %m = arith.mulf %n, %d : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
