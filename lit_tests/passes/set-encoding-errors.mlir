// RUN: not ditto-opt -p set-encoding --split-input-file %s 2>&1 | FileCheck %s
// RUN: not ditto-opt -p 'set-encoding{format=csrr}' %s 2>&1 | FileCheck %s --check-prefix=FORMAT
// RUN: not ditto-opt -p 'set-encoding{coordinates=24}' %s 2>&1 | FileCheck %s --check-prefix=WIDTH
// RUN: not ditto-opt -p 'set-encoding{format=bsr block-rows=5}' %s 2>&1 | FileCheck %s --check-prefix=BLOCK
// RUN: not ditto-opt -p 'set-encoding{block_rows=4}' %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ditto-opt -p 'set-encodings' %s 2>&1 | FileCheck %s --check-prefix=TYPO

// FORMAT: ditto-opt: bad-plan: set-encoding: format=csrr is not one of ('csr', 'csc', 'dcsr', 'dcsc', 'bsr')
// WIDTH:  ditto-opt: bad-plan: set-encoding: coordinates=24 is not one of (16, 32, 64)
// BLOCK:  ditto-opt: bad-plan: set-encoding: block-rows=5 is not one of ({{.*}}2, 3, 4, 6, 8, 16)
// OPTION: ditto-opt: bad-plan: set-encoding: no option 'block_rows'; did you mean 'block-rows'?; it has format, positions, coordinates, block-rows, block-columns
// TYPO:   ditto-opt: bad-plan: no pass is named 'set-encodings'; did you mean 'set-encoding'?

// CHECK: ditto-opt: not-applicable: set-encoding: no operand is marked ditto.sparse
func.func @dense(%A: tensor<?x?xf32>) {
  return
}

// -----

// CHECK: ditto-opt: not-applicable: set-encoding: operand 1 is no matrix
func.func @vector(%A: tensor<?x?xf32>, %x: tensor<?xf32> {ditto.sparse}) {
  return
}

// -----

// CHECK: ditto-opt: not-applicable: set-encoding: operand 0 is no matrix
func.func @scalar(%A: f32 {ditto.sparse}) {
  return
}

// -----

// CHECK: ditto-opt: not-applicable: set-encoding: there is no function with a body
module {}
