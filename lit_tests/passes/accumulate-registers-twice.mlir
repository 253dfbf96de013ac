// A nest that accumulates in registers already is built again as it was, whatever its sums start from.
// RUN: ditto-opt -p accumulate-registers,canonicalize,cse %s -o %t.once
// RUN: ditto-opt -p accumulate-registers,canonicalize,cse %t.once -o %t.twice
// RUN: diff %t.once %t.twice

func.func @old_value(%x: memref<?x?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %v = memref.load %x[%i, %j] : memref<?x?xf32>
      %o = memref.load %y[%i] : memref<?xf32>
      %s = arith.addf %o, %v : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}

func.func @fill(%x: memref<?x?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<?xf32>)
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %v = memref.load %x[%i, %j] : memref<?x?xf32>
      %o = memref.load %y[%i] : memref<?xf32>
      %s = arith.addf %o, %v : f32
      memref.store %s, %y[%i] : memref<?xf32>
    }
  }
  return
}
