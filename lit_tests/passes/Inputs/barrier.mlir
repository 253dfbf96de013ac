// Blocks whose threads wait for each other.
func.func @wait(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %m = memref.dim %x, %c0 : memref<?xf32>
  %blocks = arith.divui %m, %c128 : index
  scf.forall (%b) in (%blocks) {
    scf.forall (%t) in (128) {
      %first = arith.muli %b, %c128 : index
      %i = arith.addi %first, %t : index
      %v = memref.load %x[%i] : memref<?xf32>
      gpu.barrier
      memref.store %v, %y[%i] : memref<?xf32>
    } {mapping = [#gpu.thread<linear_dim_0>]}
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}
