// The ditto dialect: what schedule passes leave for the last lowering to spell out.
irdl.dialect @ditto {
  // The sum (or other `kind` of reduction) of `value` over the `lanes` lanes of a subgroup; every lane gets it.
  // All lanes of the warp must reach it.  With the attribute `stride` (a power of two) the lanes that meet lie so far apart.
  // `kind` is the name of an arith operation.
  irdl.operation @lane_reduce {
    %type = irdl.any
    %add = irdl.is "arith.addf"
    %mul = irdl.is "arith.mulf"
    %max = irdl.is "arith.maximumf"
    %min = irdl.is "arith.minimumf"
    %maxnum = irdl.is "arith.maxnumf"
    %minnum = irdl.is "arith.minnumf"
    %most = irdl.is "arith.maxui"
    %kind = irdl.any_of(%add, %mul, %max, %min, %maxnum, %minnum, %most)
    %one = irdl.is 1 : i32
    %two = irdl.is 2 : i32
    %four = irdl.is 4 : i32
    %eight = irdl.is 8 : i32
    %sixteen = irdl.is 16 : i32
    %warp = irdl.is 32 : i32
    %lanes = irdl.any_of(%one, %two, %four, %eight, %sixteen, %warp)
    irdl.operands(value: %type)
    irdl.results(result: %type)
    irdl.attributes { "kind" = %kind, "lanes" = %lanes }
  }

  // The `value` of the lane with number `which` among each `lanes` neighbouring lanes; all of these get it.
  // All lanes of the warp must reach it.  `which` is below `lanes` and the same in the lanes that share the value.
  irdl.operation @lane_broadcast {
    %type = irdl.any
    %index = irdl.is index
    %two = irdl.is 2 : i32
    %four = irdl.is 4 : i32
    %eight = irdl.is 8 : i32
    %sixteen = irdl.is 16 : i32
    %warp = irdl.is 32 : i32
    %lanes = irdl.any_of(%two, %four, %eight, %sixteen, %warp)
    irdl.operands(value: %type, which: %index)
    irdl.results(result: %type)
    irdl.attributes { "lanes" = %lanes }
  }

  // The same as a `lane_reduce` over the `threads` threads of a block; thread 0 gets it, the others get what is of no use.
  // All threads of the block must reach it.
  irdl.operation @block_reduce {
    %type = irdl.any
    %add = irdl.is "arith.addf"
    %mul = irdl.is "arith.mulf"
    %max = irdl.is "arith.maximumf"
    %min = irdl.is "arith.minimumf"
    %maxnum = irdl.is "arith.maxnumf"
    %minnum = irdl.is "arith.minnumf"
    %kind = irdl.any_of(%add, %mul, %max, %min, %maxnum, %minnum)
    %one = irdl.is 32 : i32
    %two = irdl.is 64 : i32
    %four = irdl.is 128 : i32
    %eight = irdl.is 256 : i32
    %sixteen = irdl.is 512 : i32
    %most = irdl.is 1024 : i32
    %threads = irdl.any_of(%one, %two, %four, %eight, %sixteen, %most)
    irdl.operands(value: %type)
    irdl.results(result: %type)
    irdl.attributes { "kind" = %kind, "threads" = %threads }
  }

  // The sum (or other `kind` of reduction) of `value` over groups of 2^`shift` neighbouring lanes; every lane gets that of its group.
  // All lanes of the warp must reach it, with the same `shift` (0 to 5).
  irdl.operation @group_reduce {
    %type = irdl.any
    %index = irdl.is index
    %add = irdl.is "arith.addf"
    %mul = irdl.is "arith.mulf"
    %max = irdl.is "arith.maximumf"
    %min = irdl.is "arith.minimumf"
    %maxnum = irdl.is "arith.maxnumf"
    %minnum = irdl.is "arith.minnumf"
    %kind = irdl.any_of(%add, %mul, %max, %min, %maxnum, %minnum)
    irdl.operands(value: %type, shift: %index)
    irdl.results(result: %type)
    irdl.attributes { "kind" = %kind }
  }

  // A buffer in shared memory (a memref of space 3, of static shape), one for all threads of the block; it holds nothing at first.
  irdl.operation @shared_buffer {
    %type = irdl.base "!builtin.memref"
    irdl.results(buffer: %type)
  }

  // What this thread did to memory before is seen by all threads of the GPU that see what it does after.
  irdl.operation @fence {
  }

  // Sums (or other `kind`s of reduction) over runs of lanes, in each group of `lanes` neighbouring lanes.  Bit l of `heads`, which all
  // lanes of a group have alike, says that lane l begins a run; lane 0 always does.  `before` is the reduction over the
  // lanes before this one that are in the run of the lane before it (nothing of `kind` for lane 0), and `total` that over the last run,
  // which every lane gets.  All lanes of the warp must reach it.
  irdl.operation @segmented_scan {
    %type = irdl.any
    %word = irdl.is i32
    %add = irdl.is "arith.addf"
    %mul = irdl.is "arith.mulf"
    %max = irdl.is "arith.maximumf"
    %min = irdl.is "arith.minimumf"
    %maxnum = irdl.is "arith.maxnumf"
    %minnum = irdl.is "arith.minnumf"
    %kind = irdl.any_of(%add, %mul, %max, %min, %maxnum, %minnum)
    %two = irdl.is 2 : i32
    %four = irdl.is 4 : i32
    %eight = irdl.is 8 : i32
    %sixteen = irdl.is 16 : i32
    %warp = irdl.is 32 : i32
    %lanes = irdl.any_of(%two, %four, %eight, %sixteen, %warp)
    irdl.operands(value: %type, heads: %word)
    irdl.results(before: %type, total: %type)
    irdl.attributes { "kind" = %kind, "lanes" = %lanes }
  }
}
