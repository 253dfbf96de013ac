"""The emulator: right results of hand-written kernels, and a message for each way to get one wrong."""

from __future__ import annotations

import contextlib
import ctypes
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from mlir import ir

from sparseditto.compiler.runtimes import simt
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.dialects.errors import CheckFailed, InputError, Unsupported

Array = np.ndarray[Any, Any]


# --- Writing kernels ----------------------------------------------------------------------------------


def reads(name: str, element: str) -> str:
    return f'memref<1x{element}, 1> {{ditto.name = "{name}", llvm.noalias, llvm.readonly, llvm.align = 16 : i64}}'


def writes(name: str, element: str) -> str:
    return f'memref<1x{element}, 1> {{ditto.name = "{name}", llvm.noalias, llvm.align = 16 : i64}}'


def view(value: str, source: str, element: str, size: str = "%n") -> str:
    """Make `value` a one-dimensional memref of `size` over the bare pointer `source`."""
    return (
        f"{value} = memref.reinterpret_cast {source} to offset: [0], sizes: [{size}], strides: [1] "
        f": memref<1x{element}, 1> to memref<?x{element}, 1>"
    )


def kernel(
    arguments: str, body: str, *, block: int | None = None, workgroup: str = "", private: str = "", outside: str = ""
) -> str:
    """S4 with one kernel `k`; every body has the ids of a one-dimensional launch and a few constants."""
    known = f" attributes {{known_block_size = array<i32: {block}, 1, 1>}}" if block else ""
    memory = (f" workgroup({workgroup})" if workgroup else "") + (f" private({private})" if private else "")
    return f"""
module attributes {{gpu.container_module}} {{
  gpu.module @kernels [#nvvm.target<chip = "sm_90", features = "+ptx80", O = 3>] {{
    {outside}
    gpu.func @k({arguments}){memory} kernel{known} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c32 = arith.constant 32 : i32
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %tx = gpu.thread_id x
      %bx = gpu.block_id x
      %bd = gpu.block_dim x
      %start = arith.muli %bx, %bd : index
      %id = arith.addi %start, %tx : index
      {body}
      gpu.return
    }}
  }}
}}
"""


def run(text: str, grid: int, block: int, *arguments: Any, checks: bool = True, threads: int | None = None) -> None:
    SimtModule(text, checks=checks, threads=threads).launch("k", (grid, 1, 1), (block, 1, 1), arguments)


def fault(text: str, grid: int, block: int, *arguments: Any, threads: int | None = None) -> str:
    """The message of the fault that the launch must end with."""
    with pytest.raises(CheckFailed) as caught:
        run(text, grid, block, *arguments, threads=threads)
    assert caught.value.where == "k"
    return caught.value.message


def csr(rows: int, columns: int, per_row: float, dtype: Any = np.float32, seed: int = 0) -> sp.csr_array:
    """A random matrix with `per_row` nonzeros in a row on average."""
    rng = np.random.default_rng(seed)
    count = int(rows * per_row)
    places = rng.integers(0, rows, count), rng.integers(0, columns, count)
    return sp.csr_array(sp.coo_array((rng.random(count).astype(dtype), places), (rows, columns)))


# --- Right results ------------------------------------------------------------------------------------


def csr_arguments(others: str, value: str = "f32", index: str = "i32") -> str:
    """The arrays of A in CSR, `others`, and the sizes: what `spmv_arguments` gives."""
    positions, coordinates, values = reads("A.positions1", index), reads("A.coordinates1", index), reads("A.values", value)
    return f"%pos_: {positions}, %crd_: {coordinates}, %val_: {values}, {others}, %m_: i64, %nnz_: i64, %n_: i64"


def csr_views(value: str = "f32", index: str = "i32") -> str:
    """The sizes as `%m`, `%nnz` and `%n`, and the arrays of A as `%pos`, `%crd` and `%val`."""
    return f"""
        %m = arith.index_cast %m_ : i64 to index
        %nnz = arith.index_cast %nnz_ : i64 to index
        %n = arith.index_cast %n_ : i64 to index
        %m1 = arith.addi %m, %c1 : index
        {view("%pos", "%pos_", index, "%m1")}
        {view("%crd", "%crd_", index, "%nnz")}
        {view("%val", "%val_", value, "%nnz")}"""


def row_bounds(row: str, index: str = "i32") -> str:
    """`%lb` and `%ub`: where the entries of `row` begin and end."""
    return f"""
          %next = arith.addi {row}, %c1 : index
          %p0 = memref.load %pos[{row}] : memref<?x{index}, 1>
          %p1 = memref.load %pos[%next] : memref<?x{index}, 1>
          %lb = arith.index_castui %p0 : {index} to index
          %ub = arith.index_castui %p1 : {index} to index"""


def spmv(value: str = "f32", index: str = "i32") -> str:
    """One row a thread."""
    return kernel(
        csr_arguments(f"%x_: {reads('x', value)}, %y_: {writes('y', value)}", value, index),
        f"""
        {csr_views(value, index)}
        {view("%x", "%x_", value)}
        {view("%y", "%y_", value, "%m")}
        %inside = arith.cmpi ult, %id, %m : index
        scf.if %inside {{
          {row_bounds("%id", index)}
          %none = arith.constant 0.0 : {value}
          %sum = scf.for %p = %lb to %ub step %c1 iter_args(%acc = %none) -> {value} {{
            %c = memref.load %crd[%p] : memref<?x{index}, 1>
            %ci = arith.index_castui %c : {index} to index
            %v = memref.load %val[%p] : memref<?x{value}, 1>
            %b = memref.load %x[%ci] : memref<?x{value}, 1>
            %f = math.fma %v, %b, %acc : {value}
            scf.yield %f : {value}
          }}
          memref.store %sum, %y[%id] : memref<?x{value}, 1>
        }}""",
        block=64,
    )


def spmv_arguments(matrix: sp.csr_array, x: Array, y: Array, index: Any = np.int32) -> list[Any]:
    rows, columns = matrix.shape
    return [matrix.indptr.astype(index), matrix.indices.astype(index), matrix.data, x, y, rows, matrix.nnz, columns]


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize(
    ("value", "index", "dtype", "index_dtype"),
    [("f32", "i32", np.float32, np.int32), ("f64", "i32", np.float64, np.int32), ("f32", "i16", np.float32, np.uint16)],
)
def test_row_per_thread_spmv(value: str, index: str, dtype: Any, index_dtype: Any, checks: bool) -> None:
    matrix = csr(300, 200, 10, dtype)
    x, y = np.random.default_rng(0).random(200).astype(dtype), np.full(300, np.nan, dtype)
    run(spmv(value, index), 5, 64, *spmv_arguments(matrix, x, y, index_dtype), checks=checks)
    np.testing.assert_allclose(y, matrix @ x, rtol=1e-5)


def subgroup_spmv(lanes: int) -> str:
    """A row is shared by `lanes` lanes, whose sums meet in shuffles; rows beyond the last compute it again."""
    steps, total = "", "%part"
    for distance in (16, 8, 4, 2, 1):
        if distance < lanes:
            steps += f"""
            %o{distance} = arith.constant {distance} : i32
            %s{distance}, %v{distance} = gpu.shuffle xor {total}, %o{distance}, %c32 : f32
            %t{distance} = arith.addf {total}, %s{distance} : f32"""
            total = f"%t{distance}"
    return kernel(
        csr_arguments(f"%x_: {reads('x', 'f32')}, %y_: {writes('y', 'f32')}"),
        f"""
        {csr_views()}
        {view("%x", "%x_", "f32")}
        {view("%y", "%y_", "f32", "%m")}
        %lanes = arith.constant {lanes} : index
        %group = arith.divui %id, %lanes : index
        %lane = arith.remui %id, %lanes : index
        %inside = arith.cmpi ult, %group, %m : index
        %last = arith.subi %m, %c1 : index
        %row = arith.select %inside, %group, %last : index
        {row_bounds("%row")}
        %mine = arith.addi %lb, %lane : index
        %part = scf.for %p = %mine to %ub step %lanes iter_args(%acc = %zero) -> f32 {{
          %c = memref.load %crd[%p] : memref<?xi32, 1>
          %ci = arith.index_castui %c : i32 to index
          %v = memref.load %val[%p] : memref<?xf32, 1>
          %b = memref.load %x[%ci] : memref<?xf32, 1>
          %f = math.fma %v, %b, %acc : f32
          scf.yield %f : f32
        }}
        {steps}
        %leads = arith.cmpi eq, %lane, %c0 : index
        %stores = arith.andi %leads, %inside : i1
        scf.if %stores {{
          memref.store {total}, %y[%row] : memref<?xf32, 1>
        }}""",
        block=128,
    )


@pytest.mark.parametrize("lanes", [2, 8, 32])
def test_subgroup_spmv(lanes: int) -> None:
    matrix = csr(301, 200, 20)
    x, y = np.random.default_rng(0).random(200, np.float32), np.full(301, np.nan, np.float32)
    run(subgroup_spmv(lanes), -(-301 * lanes // 128), 128, *spmv_arguments(matrix, x, y))
    np.testing.assert_allclose(y, matrix @ x, rtol=1e-4)


def test_rounding_to_bfloat16() -> None:
    """The library brings the function that hosts without bfloat16 need for its atomics."""
    round_ = simt._library()["__truncsfbf2"]
    round_.restype, round_.argtypes = ctypes.c_float, [ctypes.c_float]
    for value, bits in [(1.0, 0x3F80), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (-0.1, 0xBDCD), (3.4e38, 0x7F80)]:
        assert np.float32(round_(value)).view(np.uint32) == bits
    assert np.float32(round_(np.nan)).view(np.uint32) == 0x7FC0


def test_large_spmv_is_fast() -> None:
    matrix = csr(10_000, 10_000, 10)
    x, y = np.random.default_rng(0).random(10_000, np.float32), np.full(10_000, np.nan, np.float32)
    started = time.perf_counter()
    run(subgroup_spmv(8), 625, 128, *spmv_arguments(matrix, x, y))
    assert time.perf_counter() - started < 3
    np.testing.assert_allclose(y, matrix @ x, rtol=1e-4)


def spmm(width: int) -> str:
    """A row of C is shared by width / 4 lanes with a vector<4xf32> each."""
    return kernel(
        csr_arguments(f"%b_: {reads('B', 'f32')}, %c_: {writes('C', 'f32')}"),
        f"""
        {csr_views()}
        %B = memref.reinterpret_cast %b_ to offset: [0], sizes: [%n, {width}], strides: [{width}, 1]
          : memref<1xf32, 1> to memref<?x{width}xf32, 1>
        %C = memref.reinterpret_cast %c_ to offset: [0], sizes: [%m, {width}], strides: [{width}, 1]
          : memref<1xf32, 1> to memref<?x{width}xf32, 1>
        %lanes = arith.constant {width // 4} : index
        %four = arith.constant 4 : index
        %row = arith.divui %id, %lanes : index
        %lane = arith.remui %id, %lanes : index
        %j = arith.muli %lane, %four : index
        %none = arith.constant dense<0.0> : vector<4xf32>
        %inside = arith.cmpi ult, %row, %m : index
        scf.if %inside {{
          {row_bounds("%row")}
          %sum = scf.for %p = %lb to %ub step %c1 iter_args(%acc = %none) -> vector<4xf32> {{
            %c = memref.load %crd[%p] : memref<?xi32, 1>
            %ci = arith.index_castui %c : i32 to index
            %v = memref.load %val[%p] : memref<?xf32, 1>
            %vv = vector.broadcast %v : f32 to vector<4xf32>
            %b = vector.load %B[%ci, %j] {{alignment = 16 : i64}} : memref<?x{width}xf32, 1>, vector<4xf32>
            %f = vector.fma %vv, %b, %acc : vector<4xf32>
            scf.yield %f : vector<4xf32>
          }}
          vector.store %sum, %C[%row, %j] {{alignment = 16 : i64}} : memref<?x{width}xf32, 1>, vector<4xf32>
        }}""",
        block=128,
    )


@pytest.mark.parametrize("checks", [True, False])
def test_vector_spmm(checks: bool) -> None:
    matrix = csr(100, 80, 8)
    dense, out = np.random.default_rng(0).random((80, 32), np.float32), np.full((100, 32), np.nan, np.float32)
    run(spmm(32), 7, 128, *spmv_arguments(matrix, dense, out), checks=checks)
    np.testing.assert_allclose(out, matrix @ dense, rtol=1e-4)


BLOCK_SUM = kernel(
    f"%a_: {reads('a', 'f32')}, %out_: {writes('out', 'f32')}, %n_: i64",
    f"""
    %n = arith.index_cast %n_ : i64 to index
    {view("%a", "%a_", "f32")}
    {view("%out", "%out_", "f32", "%c1")}
    %v = memref.load %a[%id] : memref<?xf32, 1>
    memref.store %v, %s[%tx] : memref<128xf32, 3>
    gpu.barrier
    %half = arith.constant 64 : index
    %end = scf.while (%w = %half) : (index) -> index {{
      %more = arith.cmpi ne, %w, %c0 : index
      scf.condition(%more) %w : index
    }} do {{
    ^bb0(%w: index):
      %low = arith.cmpi ult, %tx, %w : index
      scf.if %low {{
        %other = arith.addi %tx, %w : index
        %x = memref.load %s[%tx] : memref<128xf32, 3>
        %y = memref.load %s[%other] : memref<128xf32, 3>
        %z = arith.addf %x, %y : f32
        memref.store %z, %s[%tx] : memref<128xf32, 3>
      }}
      gpu.barrier
      %next = arith.divui %w, %c2 : index
      scf.yield %next : index
    }}
    %leads = arith.cmpi eq, %tx, %c0 : index
    scf.if %leads {{
      %sum = memref.load %s[%c0] : memref<128xf32, 3>
      %old = memref.atomic_rmw addf %sum, %out[%c0] : (f32, memref<?xf32, 1>) -> f32
    }}""",
    block=128,
    workgroup="%s : memref<128xf32, 3>",
)


@pytest.mark.parametrize("checks", [True, False])
def test_block_reduction_and_atomics_across_blocks(checks: bool) -> None:
    values = np.random.default_rng(0).integers(0, 100, 1280).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(BLOCK_SUM, 10, 128, values, out, 1280, checks=checks)
    assert out[0] == values.sum()


def test_integer_histogram() -> None:
    text = kernel(
        f"%a_: {reads('a', 'i32')}, %h_: {writes('h', 'i32')}, %n_: i64",
        f"""
        %n = arith.index_cast %n_ : i64 to index
        %bins = arith.constant 8 : index
        {view("%a", "%a_", "i32")}
        {view("%h", "%h_", "i32", "%bins")}
        %unit = arith.constant 1 : i32
        %v = memref.load %a[%id] : memref<?xi32, 1>
        %bin = arith.index_cast %v : i32 to index
        %old = memref.atomic_rmw addi %unit, %h[%bin] : (i32, memref<?xi32, 1>) -> i32""",
    )
    values, histogram = np.random.default_rng(0).integers(0, 8, 4096).astype(np.int32), np.zeros(8, np.int32)
    run(text, 64, 64, values, histogram, 4096, threads=4)
    assert histogram.tolist() == np.bincount(values, minlength=8).tolist()


@pytest.mark.parametrize(
    ("operation", "element", "dtype", "expected"),
    [
        ("maximumf", "f32", np.float32, 63),
        ("minimumf", "f64", np.float64, 0),
        ("maxs", "i32", np.int32, 63),
        ("minu", "i64", np.int64, 0),
        ("addf", "f64", np.float64, 2016 + 5),
        ("ori", "i32", np.int32, 63),
    ],
)
def test_atomics(operation: str, element: str, dtype: Any, expected: int) -> None:
    cast = "arith.sitofp" if element.startswith("f") else ("arith.extsi" if element == "i64" else "arith.bitcast")
    text = kernel(
        f"%out: {writes('out', element)}",
        f"""
        %i = arith.index_cast %id : index to i32
        %v = {cast} %i : i32 to {element}
        %old = memref.atomic_rmw {operation} %v, %out[%c0] : ({element}, memref<1x{element}, 1>) -> {element}""",
    )
    out = np.full(1, 5, dtype)
    run(text, 2, 32, out)
    assert out[0] == expected


def test_atomics_on_small_elements() -> None:
    text = kernel(
        f"%a: {writes('a', 'f16')}, %b: {writes('b', 'bf16')}, %c: {writes('c', 'i16')}",
        """
        %x = arith.constant 0.5 : f16
        %y = arith.constant 0.5 : bf16
        %z = arith.constant 3 : i16
        %u = memref.atomic_rmw addf %x, %a[%c0] : (f16, memref<1xf16, 1>) -> f16
        %v = memref.atomic_rmw addf %y, %b[%c0] : (bf16, memref<1xbf16, 1>) -> bf16
        %w = memref.atomic_rmw addi %z, %c[%c0] : (i16, memref<1xi16, 1>) -> i16""",
    )
    a, b, c = np.zeros(1, np.float16), np.zeros(1, np.uint16), np.zeros(1, np.int16)
    run(text, 2, 32, a, b, c)
    assert (a[0], b.astype(np.uint32)[0] << 16, c[0]) == (32, np.float32(32).view(np.uint32), 192)


@pytest.mark.parametrize(("element", "dtype"), [("f32", np.float32), ("f64", np.float64), ("i32", np.int32), ("i64", np.int64)])
@pytest.mark.parametrize("mode", ["xor", "up", "down", "idx"])
def test_shuffles(mode: str, element: str, dtype: Any) -> None:
    cast = "arith.sitofp" if element.startswith("f") else ("arith.extsi" if element == "i64" else "arith.bitcast")
    text = kernel(
        f"%out_: {writes('out', element)}, %ok_: {writes('ok', 'i8')}",
        f"""
        %n = arith.constant 64 : index
        {view("%out", "%out_", element)}
        {view("%ok", "%ok_", "i8")}
        %i = arith.index_cast %tx : index to i32
        %v = {cast} %i : i32 to {element}
        %five = arith.constant 5 : i32
        %got, %valid = gpu.shuffle {mode} %v, %five, %c32 : {element}
        %flag = arith.extui %valid : i1 to i8
        memref.store %got, %out[%tx] : memref<?x{element}, 1>
        memref.store %flag, %ok[%tx] : memref<?xi8, 1>""",
    )
    out, valid = np.full(64, -1, dtype), np.full(64, 9, np.uint8)
    run(text, 1, 64, out, valid)
    threads = np.arange(64)
    lanes, warps = threads % 32, threads // 32 * 32
    source = {"xor": lanes ^ 5, "up": lanes - 5, "down": lanes + 5, "idx": np.full(64, 5)}[mode]
    expected = (source >= 0) & (source < 32)
    assert valid.tolist() == expected.tolist()
    assert out.tolist() == np.where(expected, source + warps, threads).tolist()


def test_ids_of_a_three_dimensional_launch() -> None:
    names = [f"{what} {axis}" for what in ("thread_id", "block_id", "block_dim", "grid_dim", "global_id") for axis in "xyz"]
    names += ["lane_id", "subgroup_id : index", "num_subgroups : index", "subgroup_size : index"]
    body = f"""
        %n = arith.constant {24 * 60 * len(names)} : index
        {view("%out", "%out_", "i64")}
        %dx = gpu.block_dim x
        %dy = gpu.block_dim y
        %dz = gpu.block_dim z
        %tz = gpu.thread_id z
        %ty = gpu.thread_id y
        %gx = gpu.grid_dim x
        %gy = gpu.grid_dim y
        %by = gpu.block_id y
        %bz = gpu.block_id z
        %rows = arith.constant {len(names)} : index
        %l0 = arith.muli %bz, %gy : index
        %l1 = arith.addi %l0, %by : index
        %l2 = arith.muli %l1, %gx : index
        %l3 = arith.addi %l2, %bx : index
        %l4 = arith.muli %l3, %dz : index
        %l5 = arith.addi %l4, %tz : index
        %l6 = arith.muli %l5, %dy : index
        %l7 = arith.addi %l6, %ty : index
        %l8 = arith.muli %l7, %dx : index
        %l9 = arith.addi %l8, %tx : index
        %at = arith.muli %l9, %rows : index
    """
    for number, name in enumerate(names):
        body += f"""
        %v{number} = gpu.{name}
        %w{number} = arith.index_cast %v{number} : index to i64
        %k{number} = arith.constant {number} : index
        %a{number} = arith.addi %at, %k{number} : index
        memref.store %w{number}, %out[%a{number}] : memref<?xi64, 1>"""
    grid, block = (2, 3, 4), (3, 4, 5)
    out = np.full((4, 3, 2, 5, 4, 3, len(names)), -1, np.int64)
    SimtModule(kernel(f"%out_: {writes('out', 'i64')}", body)).launch("k", grid, block, [out])
    bz, by, bx, tz, ty, tx = np.indices(out.shape[:-1])
    ids = [tx, ty, tz, bx, by, bz]
    sizes = [np.full_like(tx, n) for n in (*block, *grid)]
    linear = tx + 3 * (ty + 4 * tz)
    expected = [*ids, *sizes, bx * 3 + tx, by * 4 + ty, bz * 5 + tz, linear % 32, linear // 32]
    expected += [np.full_like(tx, 2), np.full_like(tx, 32)]
    np.testing.assert_array_equal(out, np.stack(expected, axis=-1))


def test_masked_vectors_touch_active_lanes_only() -> None:
    text = kernel(
        f"%a_: {reads('a', 'f32')}, %out_: {writes('out', 'f32')}, %n_: i64",
        f"""
        %n = arith.index_cast %n_ : i64 to index
        {view("%a", "%a_", "f32")}
        {view("%out", "%out_", "f32")}
        %four = arith.constant 4 : index
        %i = arith.muli %tx, %four : index
        %left = arith.subi %n, %i : index
        %mask = vector.create_mask %left : vector<4xi1>
        %pass = arith.constant dense<7.0> : vector<4xf32>
        %v = vector.maskedload %a[%i], %mask, %pass : memref<?xf32, 1>, vector<4xi1>, vector<4xf32> into vector<4xf32>
        %w = arith.addf %v, %v : vector<4xf32>
        vector.maskedstore %out[%i], %mask, %w : memref<?xf32, 1>, vector<4xi1>, vector<4xf32>""",
    )
    values, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    run(text, 1, 3, values, out, 10)
    assert out.tolist() == (2 * values).tolist()
    assert fault(text, 1, 3, values, out[:9].copy(), 10).startswith("out-of-bounds store: out[9] of 9, ")


def test_memory_of_every_kind() -> None:
    """A shared global, dynamic shared memory seen as another type, and private memory, one of it in a loop."""
    text = kernel(
        f"%out_: {writes('out', 'f32')}",
        f"""
        %n = arith.constant 32 : index
        {view("%out", "%out_", "f32")}
        %g = memref.get_global @g : memref<2x32xf32, 3>
        %raw = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
        %d = memref.view %raw[%c0][]
          : memref<?xi8, #gpu.address_space<workgroup>> to memref<32xf32, #gpu.address_space<workgroup>>
        %i = arith.index_cast %tx : index to i32
        %v = arith.sitofp %i : i32 to f32
        scf.for %k = %c0 to %n step %c1 {{
          %own = memref.alloca() : memref<1xf32>
          memref.store %v, %own[%c0] : memref<1xf32>
          %w = memref.load %own[%c0] : memref<1xf32>
          memref.store %w, %p[%c1] : memref<2xf32, 5>
        }}
        %x = memref.load %p[%c1] : memref<2xf32, 5>
        memref.store %x, %g[%c1, %tx] : memref<2x32xf32, 3>
        memref.store %x, %d[%tx] : memref<32xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %last = arith.subi %n, %c1 : index
        %j = arith.subi %last, %tx : index
        %y = memref.load %g[%c1, %j] : memref<2x32xf32, 3>
        %z = memref.load %d[%j] : memref<32xf32, #gpu.address_space<workgroup>>
        %s = arith.addf %y, %z : f32
        memref.store %s, %out[%tx] : memref<?xf32, 1>""",
        private="%p : memref<2xf32, 5>",
        outside='memref.global "private" @g : memref<2x32xf32, 3>',
    )
    out = np.zeros(32, np.float32)
    module = SimtModule(text)
    module.launch("k", (1, 1, 1), (32, 1, 1), [out], shared_bytes=128)
    assert out.tolist() == [2.0 * (31 - i) for i in range(32)]
    with pytest.raises(CheckFailed, match=re.escape("out-of-bounds store: dynamic shared memory[64] of 64")):
        module.launch("k", (1, 1, 1), (32, 1, 1), [out], shared_bytes=64)


@pytest.mark.parametrize(("element", "to_bits"), [("f16", None), ("bf16", np.uint16)])
def test_small_floats(element: str, to_bits: Any) -> None:
    text = kernel(
        f"%a_: {reads('a', element)}, %out_: {writes('out', element)}, %n_: i64",
        f"""
        %n = arith.index_cast %n_ : i64 to index
        {view("%a", "%a_", element)}
        {view("%out", "%out_", element)}
        %v = memref.load %a[%tx] : memref<?x{element}, 1>
        %w = arith.addf %v, %v : {element}
        %x = arith.extf %w : {element} to f32
        %e = math.sqrt %x : f32
        %s = arith.truncf %e : f32 to {element}
        memref.store %s, %out[%tx] : memref<?x{element}, 1>""",
    )
    values = np.array([2, 8, 18, 0.5], np.float32)
    if to_bits is None:
        half, out = values.astype(np.float16), np.zeros(4, np.float16)
        run(text, 1, 4, half, out, 4)
        assert out.tolist() == [2, 4, 6, 1]
    else:
        bits, out_bits = (values.view(np.uint32) >> 16).astype(np.uint16), np.zeros(4, np.uint16)
        run(text, 1, 4, bits, out_bits, 4)
        assert (out_bits.astype(np.uint32) << 16).view(np.float32).tolist() == [2, 4, 6, 1]


def test_several_kernels_and_scalars() -> None:
    one = kernel(
        f"%out: {writes('out', 'f64')}, %a: i32, %b: f32, %c: f64",
        """
        %x = arith.sitofp %a : i32 to f64
        %y = arith.extf %b : f32 to f64
        %z = arith.addf %x, %y : f64
        %w = arith.addf %z, %c : f64
        memref.store %w, %out[%c0] : memref<1xf64, 1>""",
    )
    two = one.replace("@k(", "@other(").replace("arith.addf %z, %c", "arith.mulf %z, %c")
    body = two[two.index("gpu.func") : two.index("gpu.return")]
    module = SimtModule(one.replace("gpu.func @k", f"{body} gpu.return }} gpu.func @k"))
    assert sorted(module.kernels) == ["k", "other"]
    out = np.zeros(1)
    module.launch("k", (1, 1, 1), (1, 1, 1), [out, -3, 0.5, 2.0])
    assert out[0] == -0.5
    module.launch("other", (1, 1, 1), (1, 1, 1), [out, np.int64(-3), np.float32(0.5), 2])
    assert out[0] == -5


def test_takes_a_module_and_leaves_it_alone() -> None:
    with ir.Context():
        module = ir.Module.parse(BLOCK_SUM)
        before = str(module)
        emulator = SimtModule(module)
        assert str(module) == before
    out = np.zeros(1, np.float32)
    emulator.launch("k", (1, 1, 1), (128, 1, 1), [np.ones(128, np.float32), out, 128])
    assert out[0] == 128


def test_empty_grid_does_nothing() -> None:
    out = np.zeros(1, np.float32)
    run(BLOCK_SUM, 0, 128, np.ones(0, np.float32), out, 0)
    assert out[0] == 0


def test_arrays_off_alignment_work() -> None:
    matrix = csr(20, 20, 4)
    room = np.zeros(41, np.float32)
    x, y = room[1:21], room[21:]
    x[...] = 1
    run(spmv(), 1, 64, *spmv_arguments(matrix, x, y))
    np.testing.assert_allclose(y, matrix @ x, rtol=1e-5)


# --- Faults: memory -----------------------------------------------------------------------------------


def touch(operation: str, *, size: str = "%n", element: str = "f32", read_only: bool = False) -> str:
    """A kernel that does `operation` with `%i` = thread + `offset` on `%a` of the size that is passed."""
    argument = (reads if read_only else writes)("A.values", element)
    return kernel(
        f"%a_: {argument}, %offset_: i64, %n_: i64",
        f"""
        %n = arith.index_cast %n_ : i64 to index
        %offset = arith.index_cast %offset_ : i64 to index
        {view("%a", "%a_", element, size)}
        %i = arith.addi %id, %offset : index
        {operation}""",
    )


LOAD = "%v = memref.load %a[%i] : memref<?xf32, 1>"
STORE = "memref.store %one, %a[%i] : memref<?xf32, 1>"
ATOMIC = "%v = memref.atomic_rmw addf %one, %a[%i] : (f32, memref<?xf32, 1>) -> f32"
VECTOR = "%v = vector.load %a[%i] {alignment = 16 : i64} : memref<?xf32, 1>, vector<4xf32>"


@pytest.mark.parametrize(("operation", "kind"), [(LOAD, "load"), (STORE, "store"), (ATOMIC, "atomic")])
def test_out_of_bounds(operation: str, kind: str) -> None:
    array = np.zeros(120, np.float32)
    message = fault(touch(operation), 4, 32, array, 0, 1000)
    assert message.startswith(f"out-of-bounds {kind}: A.values[120] of 120, block (3,0,0) thread (24,0,0), at line ")
    message = fault(touch(operation), 1, 32, array, -1, 1000)
    assert message.startswith(f"out-of-bounds {kind}: A.values[-1] of 120, block (0,0,0) thread (0,0,0), at line ")


def test_out_of_bounds_of_a_vector_names_the_first_element_outside() -> None:
    message = fault(touch(VECTOR, read_only=True), 1, 1, np.zeros(10, np.float32), 8, 1000)
    assert message.startswith("out-of-bounds load: A.values[10] of 10, block (0,0,0) thread (0,0,0)")


def test_out_of_bounds_of_the_size_that_the_kernel_was_told() -> None:
    message = fault(touch(LOAD), 1, 32, np.zeros(64, np.float32), 0, 20)
    assert message.startswith("out-of-bounds load: A.values[20] of 64, block (0,0,0) thread (20,0,0), index [20] of [20]")


def test_out_of_bounds_of_a_column() -> None:
    text = kernel(
        f"%a: {writes('A', 'f32')}",
        """
        %A = memref.reinterpret_cast %a to offset: [0], sizes: [3, 4], strides: [4, 1] : memref<1xf32, 1> to memref<3x4xf32, 1>
        memref.store %one, %A[%c1, %tx] : memref<3x4xf32, 1>""",
    )
    message = fault(text, 1, 5, np.zeros((3, 4), np.float32))
    assert message.startswith("out-of-bounds store: A[8] of 12, block (0,0,0) thread (4,0,0), index [1, 4] of [3, 4]")


def test_out_of_bounds_of_an_affine_access() -> None:
    text = kernel(f"%a: {reads('a', 'f32')}", "affine.for %k = 0 to 4 {\n %v = affine.load %a[%k] : memref<1xf32, 1>\n }")
    assert fault(text, 1, 1, np.zeros(3, np.float32)).startswith("out-of-bounds load: a[1] of 3")


def test_fault_at_an_unknown_place() -> None:
    """What passes make may come from nowhere; the message then counts operations."""
    with ir.Context():
        text = ir.Module.parse(touch(f"{STORE}\n{LOAD}")).operation.get_asm(enable_debug_info=True)
    nowhere = re.sub(r"loc\(#loc\d*\)", "loc(unknown)", text)
    assert fault(nowhere, 1, 5, np.zeros(4, np.float32), 0, 9).endswith("thread (4,0,0), at memref.store #1")


def test_out_of_bounds_of_shared_memory() -> None:
    body = "memref.store %one, %s[%tx] : memref<16xf32, 3>"
    text = kernel("", body, workgroup="%s : memref<16xf32, 3>")
    assert fault(text, 1, 17).startswith("out-of-bounds store: shared0[16] of 16, block (0,0,0) thread (16,0,0)")
    text = kernel("", body, workgroup='%s : memref<16xf32, 3> {ditto.name = "tile"}')
    assert fault(text, 1, 17).startswith("out-of-bounds store: tile[16] of 16, ")


def test_out_of_bounds_of_private_memory() -> None:
    text = kernel("", "memref.store %one, %p[%tx] : memref<16xf32, 5>", private="%p : memref<16xf32, 5>")
    assert fault(text, 1, 17).startswith("out-of-bounds store: private0[16] of 16, block (0,0,0) thread (16,0,0)")


def test_out_of_bounds_through_a_choice_of_buffers() -> None:
    text = kernel(
        f"%a: {reads('a', 'f32')}, %b: {reads('b', 'f32')}, %which: i32, %n_: i64",
        f"""
        %n = arith.index_cast %n_ : i64 to index
        {view("%av", "%a", "f32")}
        {view("%bv", "%b", "f32")}
        %zero32 = arith.constant 0 : i32
        %first = arith.cmpi eq, %which, %zero32 : i32
        %m = scf.if %first -> memref<?xf32, 1> {{
          scf.yield %av : memref<?xf32, 1>
        }} else {{
          scf.yield %bv : memref<?xf32, 1>
        }}
        %v = memref.load %m[%tx] : memref<?xf32, 1>""",
    )
    a, b = np.zeros(8, np.float32), np.zeros(5, np.float32)
    run(text, 1, 8, a, b, 0, 8)
    assert fault(text, 1, 8, a, b, 1, 8).startswith("out-of-bounds load: b[5] of 5")


def test_misaligned_vector() -> None:
    array = np.zeros(64, np.float32)
    run(touch(VECTOR, read_only=True), 1, 1, array, 4, 64)
    message = fault(touch(VECTOR, read_only=True), 1, 1, array, 2, 64)
    assert message.startswith("misaligned load: A.values[2] of 64 is not on a 16-byte boundary, block (0,0,0) thread (0,0,0)")
    unaligned = VECTOR.replace("{alignment = 16 : i64}", "")
    run(touch(unaligned, read_only=True), 1, 1, array, 2, 64)


@pytest.mark.parametrize(("operation", "kind"), [(STORE, "store"), (ATOMIC, "atomic")])
def test_write_to_read_only_memory(operation: str, kind: str) -> None:
    array = np.zeros(4, np.float32)
    message = fault(touch(operation, read_only=True), 1, 1, array, 3, 4)
    assert message.startswith(f"write to read-only memory: {kind} to A.values[3] of 4, block (0,0,0) thread (0,0,0)")
    assert array[3] == 0


def shared(body: str) -> str:
    return kernel(f"%out: {writes('out', 'f32')}", body, workgroup="%s : memref<64xf32, 3>")


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("%v = memref.load %s[%i] : memref<64xf32, 3>", "load"),
        ("%v = vector.load %s[%i] : memref<64xf32, 3>, vector<4xf32>", "load"),
        ("%v = memref.atomic_rmw addf %one, %s[%i] : (f32, memref<64xf32, 3>) -> f32", "atomic"),
    ],
)
def test_read_of_shared_memory_that_nothing_wrote(operation: str, kind: str) -> None:
    """Block 0 writes all of it, which must not help block 1."""
    text = shared(
        f"""
        %first = arith.cmpi eq, %bx, %c0 : index
        scf.if %first {{
          memref.store %one, %s[%tx] : memref<64xf32, 3>
        }}
        gpu.barrier
        %i = arith.constant 5 : index
        %leads = arith.cmpi eq, %tx, %c2 : index
        scf.if %leads {{
          {operation}
        }}"""
    )
    run(text, 1, 64, np.zeros(1, np.float32))
    message = fault(text, 2, 64, np.zeros(1, np.float32), threads=1)
    assert message.startswith(f"uninitialised {kind}: nothing wrote shared0[5] of 64, block (1,0,0) thread (2,0,0)")


def test_division_by_zero_is_a_fault_and_no_trap() -> None:
    text = kernel(
        f"%out: {writes('out', 'i32')}, %a: i32, %b: i32",
        """
        %q = arith.divsi %a, %b : i32
        memref.store %q, %out[%c0] : memref<1xi32, 1>""",
    )
    out = np.zeros(1, np.int32)
    run(text, 1, 1, out, 7, -2)
    assert out[0] == -3
    run(text, 1, 1, out, -(2**31), -1)
    assert out[0] == -(2**31)
    assert fault(text, 1, 1, out, 7, 0).startswith("division by zero, block (0,0,0) thread (0,0,0)")
    run(text, 1, 1, out, 7, 0, checks=False)


# --- Faults: races ------------------------------------------------------------------------------------


def test_missing_barrier() -> None:
    """Each thread reads what its neighbour wrote, whichever of the two runs first."""
    for neighbour in ("%up", "%down"):
        body = f"""
        %n = arith.constant 64 : index
        %k = arith.constant 63 : index
        %a = arith.addi %tx, %c1 : index
        %up = arith.remui %a, %n : index
        %b = arith.addi %tx, %k : index
        %down = arith.remui %b, %n : index
        memref.store %one, %s[%tx] : memref<64xf32, 3>
        BARRIER
        %v = memref.load %s[{neighbour}] : memref<64xf32, 3>"""
        run(shared(body.replace("BARRIER", "gpu.barrier")), 2, 64, np.zeros(1, np.float32))
        message = fault(shared(body.replace("BARRIER", "")), 1, 64, np.zeros(1, np.float32))
        assert re.match(
            r"data race on shared0\[\d+\] of 64: (load|store) by block \(0,0,0\) thread \(\d+,0,0\) and (load|store) by block "
            r"\(0,0,0\) thread \(\d+,0,0\) with no barrier between them, at line \d+:\d+$",
            message,
        )
        assert "load by" in message
        assert "store by" in message


def test_two_stores_of_one_value_race() -> None:
    message = fault(shared("memref.store %one, %s[%c1] : memref<64xf32, 3>"), 1, 64, np.zeros(1, np.float32))
    assert message.startswith(
        "data race on shared0[1] of 64: store by block (0,0,0) thread (0,0,0) and store by block (0,0,0) thread (1,0,0)"
    )


def test_store_after_reads_of_several_threads_races() -> None:
    """The writer read the element as well, after others had, so that the last reader is no help."""
    body = """
        %leads = arith.cmpi eq, %tx, %c0 : index
        scf.if %leads {
          memref.store %one, %s[%c1] : memref<64xf32, 3>
        }
        gpu.barrier
        %v = memref.load %s[%c1] : memref<64xf32, 3>
        %k = arith.constant 40 : index
        %writes = arith.cmpi eq, %tx, %k : index
        scf.if %writes {
          memref.store %one, %s[%c1] : memref<64xf32, 3>
        }"""
    message = fault(shared(body), 1, 41, np.zeros(1, np.float32))
    assert message.startswith(
        "data race on shared0[1] of 64: load by block (0,0,0) thread (0,0,0) and store by block (0,0,0) thread (40,0,0)"
    )


def test_shuffles_do_not_order_memory() -> None:
    body = """
        memref.store %one, %s[%tx] : memref<64xf32, 3>
        %unit = arith.constant 1 : i32
        %got, %ok = gpu.shuffle xor %one, %unit, %c32 : f32
        %n = arith.constant 32 : index
        %a = arith.addi %tx, %c1 : index
        %next = arith.remui %a, %n : index
        %v = memref.load %s[%next] : memref<64xf32, 3>"""
    assert fault(shared(body), 1, 32, np.zeros(1, np.float32)).startswith("data race on shared0[1] of 64")


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        (STORE, STORE, {"store"}),
        (STORE, LOAD, {"store", "load"}),
        (ATOMIC, LOAD, {"atomic", "load"}),
        (ATOMIC, STORE, {"atomic", "store"}),
    ],
)
def test_race_between_blocks(first: str, second: str, kinds: set[str], threads: int) -> None:
    text = touch(
        f"""
        %zeroth = arith.cmpi eq, %bx, %c0 : index
        scf.if %zeroth {{
          {first.replace("%i", "%c2")}
        }} else {{
          {second.replace("%i", "%c2")}
        }}"""
    )
    message = fault(text, 2, 1, np.zeros(8, np.float32), 0, 8, threads=threads)
    found = re.match(
        r"data race on A.values\[2\] of 8: (\w+) by block \((\d),0,0\) thread \(0,0,0\) and (\w+) by block \((\d),0,0\) thread "
        r"\(0,0,0\), whose blocks are in no order",
        message,
    )
    assert found
    assert {found[1], found[3]} == kinds
    assert {found[2], found[4]} == {"0", "1"}


RACY = kernel(
    f"%kinds_: {reads('kinds', 'i8')}, %where_: {reads('where', 'i8')}, %data_: {writes('data', 'f32')}, "
    "%epochs_: i64, %size_: i64",
    f"""
    %epochs = arith.index_cast %epochs_ : i64 to index
    %size = arith.index_cast %size_ : i64 to index
    {view("%kinds", "%kinds_", "i8", "%size")}
    {view("%where", "%where_", "i8", "%size")}
    %four = arith.constant 4 : index
    {view("%global", "%data_", "f32", "%four")}
    %few = arith.cmpi ult, %tx, %four : index
    scf.if %few {{
      memref.store %one, %s[%tx] : memref<4xf32, 3>
    }}
    gpu.barrier
    %load = arith.constant 1 : i8
    %store = arith.constant 2 : i8
    %atomic = arith.constant 3 : i8
    %row = arith.muli %id, %epochs : index
    scf.for %e = %c0 to %epochs step %c1 {{
      %r = arith.addi %row, %e : index
      %p0 = arith.muli %r, %c2 : index
      scf.for %k = %c0 to %c2 step %c1 {{
        %p = arith.addi %p0, %k : index
        %kind = memref.load %kinds[%p] : memref<?xi8, 1>
        %at = memref.load %where[%p] : memref<?xi8, 1>
        %i = arith.index_cast %at : i8 to index
        %loads = arith.cmpi eq, %kind, %load : i8
        scf.if %loads {{
          %v = memref.load MEMORY
        }}
        %stores = arith.cmpi eq, %kind, %store : i8
        scf.if %stores {{
          memref.store %one, MEMORY
        }}
        %adds = arith.cmpi eq, %kind, %atomic : i8
        scf.if %adds {{
          %w = memref.atomic_rmw addf %one, ATOMIC
        }}
      }}
      gpu.barrier
    }}""",
    workgroup="%s : memref<4xf32, 3>",
)


def racy(memory: str) -> SimtModule:
    """A kernel in which thread t does, in each epoch, two accesses that arrays prescribe."""
    place, type_ = ("%s[%i]", "memref<4xf32, 3>") if memory == "shared" else ("%global[%i]", "memref<?xf32, 1>")
    text = RACY.replace("MEMORY", f"{place} : {type_}").replace("ATOMIC", f"{place} : (f32, {type_}) -> f32")
    return SimtModule(text, threads=2)


def races(kinds: Array, where: Array, *, across_blocks: bool) -> bool:
    """Whether any two accesses race, by looking at all pairs.  Axes: block, thread, epoch, access."""
    accesses = [(b, t, e, kinds[b, t, e, k], where[b, t, e, k]) for b, t, e, k in np.ndindex(kinds.shape) if kinds[b, t, e, k]]
    for i, (b, t, e, kind, at) in enumerate(accesses):
        for b2, t2, e2, kind2, at2 in accesses[:i]:
            conflict = at == at2 and (kind != kind2 or kind == 2)
            unordered = across_blocks if b != b2 else (e == e2 and t != t2)
            if conflict and unordered:
                return True
    return False


@pytest.mark.parametrize("memory", ["shared", "global"])
def test_races_are_reported_if_and_only_if_there_are_any(memory: str) -> None:
    """Random programs, against the definition."""
    module = racy(memory)
    rng = np.random.default_rng(1)
    seen = {True: 0, False: 0}
    for _ in range(300):
        blocks, threads, epochs = int(rng.integers(1, 4)), int(rng.choice([4, 5, 40])), int(rng.integers(1, 4))
        shape = (blocks, threads, epochs, 2)
        weights = rng.dirichlet([1, 1, 1])
        busy = rng.random(shape) < rng.choice([2, 4, 8, 200]) / (threads * epochs * blocks)
        kinds = np.where(busy, rng.choice([1, 2, 3], shape, p=weights), 0).astype(np.int8)
        where = rng.integers(0, 4, shape).astype(np.int8)
        expected = races(kinds, where, across_blocks=memory == "global")
        seen[expected] += 1
        arguments: list[Any] = [kinds, where, np.zeros(4, np.float32), epochs, kinds.size]
        raises = pytest.raises(CheckFailed, match=r"^k: data race on ") if expected else contextlib.nullcontext()
        with raises:
            module.launch("k", (blocks, 1, 1), (threads, 1, 1), arguments)
    assert min(seen.values()) > 50


# --- Faults: divergence -------------------------------------------------------------------------------


def guarded(condition: str, body: str, otherwise: str = "") -> str:
    return f"""
        %seven = arith.constant 7 : index
        %is = arith.cmpi {condition}, %tx, %seven : index
        scf.if %is {{
          {body}
        }} else {{
          {otherwise}
        }}"""


def test_divergent_barrier() -> None:
    message = fault(kernel("", guarded("ne", "gpu.barrier")), 1, 64)
    assert message.startswith("divergent barrier: block (0,0,0) thread (0,0,0) waits at the barrier at line ")
    assert message.endswith(", thread (7,0,0) has returned")
    message = fault(kernel("", guarded("ne", "gpu.barrier", "gpu.barrier")), 2, 64)
    assert re.search(
        r"thread \(0,0,0\) waits at the barrier at line (\d+):\d+, thread \(7,0,0\) at the barrier at line (?!\1:)\d+:\d+$",
        message,
    )


SHUFFLE = "%got, %ok = gpu.shuffle xor %one, %c32, %c32 : f32"


def test_divergent_shuffle() -> None:
    message = fault(kernel("", guarded("ne", SHUFFLE)), 1, 64)
    assert message.startswith("divergent shuffle: block (0,0,0) thread (0,0,0) waits at the shuffle at line ")
    assert message.endswith(", thread (7,0,0) has returned")
    message = fault(kernel("", guarded("ult", SHUFFLE, SHUFFLE)), 1, 64)
    assert re.search(r"thread \(7,0,0\) at the shuffle at line \d+:\d+$", message)
    message = fault(kernel("", guarded("eq", SHUFFLE, "gpu.barrier")), 1, 64)
    assert re.search(r"thread \(7,0,0\) waits at the shuffle at line \d+:\d+, thread \(0,0,0\) at the barrier at line", message)


def test_warps_may_diverge_from_each_other() -> None:
    body = f"""
        %n = arith.constant 32 : index
        %low = arith.cmpi ult, %tx, %n : index
        scf.if %low {{
          {SHUFFLE}
        }}"""
    run(kernel("", body), 1, 64)


def test_shuffle_in_a_warp_that_is_not_full() -> None:
    body = """
        %far = arith.constant {offset} : i32
        %got, %ok = gpu.shuffle xor %one, %far, %c32 : f32"""
    run(kernel("", body.replace("{offset}", "4")), 1, 40)
    message = fault(kernel("", body.replace("{offset}", "8")), 1, 40)
    assert message.startswith(
        "shuffle from a missing lane: block (0,0,0) thread (32,0,0) reads lane 8 of a warp of 8, at line "
    )


def test_shuffle_of_another_width() -> None:
    text = kernel("", "%w = arith.constant 8 : i32\n %got, %ok = gpu.shuffle xor %one, %w, %w : f32")
    assert fault(text, 1, 32).startswith("shuffle of width 8: only 32 means the same on a GPU, block (0,0,0) thread (0,0,0)")


# --- After a fault, and misuse ------------------------------------------------------------------------


def test_usable_after_faults_and_leaks_nothing() -> None:
    module = SimtModule(touch(f"gpu.barrier\n{STORE}\ngpu.barrier"), threads=2)
    array = np.zeros(64, np.float32)

    def fail() -> None:
        with pytest.raises(CheckFailed, match="out-of-bounds store"):
            module.launch("k", (4, 1, 1), (64, 1, 1), [array, 0, 1000])

    def footprint() -> tuple[int, int]:
        return len(Path("/proc/self/maps").read_text().splitlines()), len(list(Path("/proc/self/task").iterdir()))

    for _ in range(5):
        fail()
    before = footprint()
    for _ in range(50):
        fail()
    after = footprint()
    assert after[1] <= before[1]
    assert after[0] <= before[0] + 20
    array[:] = 0
    module.launch("k", (1, 1, 1), (64, 1, 1), [array, 0, 64])
    assert (array == 1).all()


def test_a_fault_stops_the_other_blocks() -> None:
    """Block 0 goes wrong at once; the other half billion would take minutes."""
    body = f"""
        %leads = arith.cmpi eq, %bx, %c0 : index
        scf.if %leads {{
          {LOAD.replace("%i", "%n")}
        }}"""
    array = np.zeros(4, np.float32)
    started = time.perf_counter()
    assert fault(touch(body), 500_000_000, 32, array, 0, 4).startswith("out-of-bounds load: A.values[4] of 4")
    assert time.perf_counter() - started < 2


@pytest.fixture
def interrupt() -> Iterator[None]:
    """Ctrl-C, half a second from now."""

    def handler(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("interrupt")
@pytest.mark.parametrize("checks", [True, False])
def test_a_launch_can_be_interrupted(checks: bool) -> None:
    text, array = touch(ATOMIC.replace("%i", "%c0")), np.zeros(4, np.float32)
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        run(text, 500_000_000, 32, array, 0, 4, checks=checks)
    assert time.perf_counter() - started < 1.5


def test_wrong_launches() -> None:
    module = SimtModule(BLOCK_SUM)
    values, out = np.ones(128, np.float32), np.zeros(1, np.float32)

    def refused(pattern: str, *arguments: Any, name: str = "k", grid: Any = (1, 1, 1), block: Any = (128, 1, 1)) -> None:
        with pytest.raises(InputError, match=pattern):
            module.launch(name, grid, block, arguments)

    refused("there is no kernel 'kk'; did you mean 'k'", values, out, 128, name="kk")
    refused("2 arguments given, 3 needed: a, out, argument 2", values, out)
    refused(r"a must be an array of float32 \(f32 in the kernel\), not of float64", values.astype(float), out, 128)
    refused("a must be an array of float32", values.astype(">f4"), out, 128)
    refused("a must be a NumPy array, not list", [1.0], out, 128)
    refused("a is not contiguous", np.ones(256, np.float32)[::2], out, 128)
    frozen = out.copy()
    frozen.flags.writeable = False
    refused("out is read-only, but the kernel may write to it", values, frozen, 128)
    refused("argument 2 must be an integer, not float 1.5", values, out, 1.5)
    refused("argument 2 must be an integer, not an array of float32", values, out, values)
    refused(f"argument 2={2**63} does not fit into i64", values, out, 2**63)
    refused("a and out overlap in memory", values, values[3:4], 128)
    refused(r"block \(64, 1, 1\), but the kernel was compiled for \(128, 1, 1\)", values, out, 128, block=(64, 1, 1))
    refused("a block of 2048 threads; a GPU takes 1024", values, out, 128, block=(1024, 2, 1))
    refused("grid .* is not three integers", values, out, 128, grid=(1, 1))
    refused("grid .* is not three integers of at least 0", values, out, 128, grid=(-1, 1, 1))
    refused("a grid of .* blocks", values, out, 128, grid=(1 << 20, 1 << 20, 1))
    module.launch("k", (1, 1, 1), (128, 1, 1), [values, out, 128])
    assert out[0] == 128


def test_read_only_arrays_and_shared_inputs_are_fine() -> None:
    matrix = csr(4, 4, 2)
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    x.flags.writeable = False
    run(spmv(), 1, 64, *spmv_arguments(matrix, x, y))
    np.testing.assert_allclose(y, matrix @ x, rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        ("%v = vector.transfer_read %a[%c0], %zero : memref<1xf32, 1>, vector<4xf32>", "form of 'vector.transfer_read'"),
        ('gpu.printf "hello"', "no host form of 'gpu.printf'"),
        ("nvvm.barrier0", "no host form of 'nvvm.barrier"),
        ('"ditto.group_reduce"(%one) : (f32) -> ()', "no host form of 'ditto.group_reduce'"),
        ("%v = memref.alloca(%tx) : memref<?xf32>", "memref.alloca of dynamic size"),
        (
            "%m = memref.alloca() : memref<16xi8>\n%v = memref.view %m[%c0][] : memref<16xi8> to memref<4xf32>\n"
            "memref.store %one, %v[%c0] : memref<4xf32>",
            "no memref.view of private memory",
        ),
        ("memref.copy %a, %a : memref<1xf32, 1> to memref<1xf32, 1>", "no host form of 'memref.copy'"),
        ('%t = arith.constant true\n cf.assert %t, "no"', "no host form of 'cf.assert'"),
        (
            "%m = memref.alloca() : memref<4x4xf32, affine_map<(i, j) -> (j, i)>>",
            "takes memrefs with strides only, not memref<4x4xf32",
        ),
        ("%v = gpu.subgroup_reduce add %one : (f32) -> f32", "no host form of 'gpu.subgroup_reduce'"),
        (
            "%m = memref.alloca() : memref<1x4xf32>\n%v = vector.load %m[%c0, %c0] : memref<1x4xf32>, vector<1x4xf32>",
            "vectors of one dimension, not vector<1x4xf32>",
        ),
    ],
)
def test_unsupported_operations_are_named(body: str, pattern: str) -> None:
    with pytest.raises(Unsupported, match=pattern) as caught:
        SimtModule(kernel(f"%a: {writes('a', 'f32')}", body))
    assert re.match(r"k, line \d+:\d+$", caught.value.where or "")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("module {", r"^S4:1:\d+: "),
        ("module {}", "there is no gpu.func"),
        (kernel("%a: i128", ""), "no elements of type i128"),
        (kernel("%a: memref<?xf32, 1>", ""), "must be a bare pointer"),
    ],
)
def test_what_is_no_kernel(text: str, pattern: str) -> None:
    with pytest.raises((InputError, Unsupported), match=pattern):
        SimtModule(text)


def test_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    simt._library.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(simt, "_LIBRARY", "libabsent.so")
        with pytest.raises(InputError, match=r"libabsent.so is missing .*make build"):
            SimtModule(BLOCK_SUM)
    SimtModule(BLOCK_SUM)
