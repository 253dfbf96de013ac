"""Binding matrices, arrays and sizes to a kernel: what agrees, and what is refused with which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import computation, matmul, matvec, transposed_matmul

from sparseditto.compiler.api import bind_package, compile_file, run
from sparseditto.compiler.computation import Computation
from sparseditto.compiler.problem import bind, parse_bindings, parse_sizes
from sparseditto.dialects.errors import InputError

Write = Callable[[str], Path]

A = sp.csr_array(np.arange(12.0).reshape(3, 4))


SPMV, SPMM, TRANSPOSED = computation(matvec()), computation(matmul()), computation(transposed_matmul())


# --- What agrees --------------------------------------------------------------------------------------


def test_sizes_come_from_the_matrix() -> None:
    problem = bind(SPMV, {"A": A})
    assert problem.sizes == {0: 3, 1: 4}
    assert [problem.shape(o) for o in SPMV.operands] == [(3, 4), (4,), (3,)]


def test_sizes_come_from_dense_operands_too() -> None:
    problem = bind(SPMM, {"B": np.zeros((4, 9))})
    assert problem.sizes == {2: 4, 1: 9}
    assert problem.matrix is None
    assert bind(SPMM, {"A": A, "B": np.zeros((4, 9))}).shape(SPMM.output) == (3, 9)


def test_a_transposed_matrix_swaps_the_sizes() -> None:
    problem = bind(TRANSPOSED, {"A": A}, {"K": 5})
    assert [problem.shape(o) for o in TRANSPOSED.operands] == [(3, 4), (3, 5), (4, 5)]
    assert bind(TRANSPOSED, {}, {"M": 3, "N": 4, "K": 5}).sizes == problem.sizes


@pytest.mark.parametrize("key", ["A", "arg0"])
def test_operands_by_name_or_place(key: str) -> None:
    assert bind(SPMV, {key: A}).matrix is not None
    assert bind(SPMV, {"arg1": np.zeros(4)}).dense.keys() == {"x"}


@pytest.mark.parametrize("name", ["K", "d1", "B.1", "arg1.1"])
def test_names_of_a_size(name: str) -> None:
    assert bind(SPMM, {"A": A}, {name: 7}).sizes[1] == 7


def test_a_size_may_be_said_twice_when_it_is_the_same() -> None:
    assert bind(SPMM, {"A": A, "B": np.zeros((4, 9))}, {"K": 9, "M": 3, "B.0": 4}).sizes == {0: 3, 1: 9, 2: 4}


def test_files(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", A)
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.int16))
    for path in (tmp_path / "a.npz", str(tmp_path / "a.npz")):
        problem = bind(SPMV, {"A": path, "x": tmp_path / "x.npy"})
        assert problem.matrix is not None
        assert (problem.matrix.csr != A).nnz == 0
        assert problem.dense["x"].tolist() == [0, 1, 2, 3]


def test_notes_name_the_operand() -> None:
    doubled = sp.coo_array(([1.0, 1.0], ([0, 0], [0, 0])), shape=(3, 4))
    (note,) = bind(SPMV, {"A": doubled}).notes
    assert note.startswith("A: ")
    assert "duplicate" in note


def test_sizes_of_zero_are_sizes() -> None:
    assert bind(SPMM, {"A": sp.csr_array((0, 0))}, {"K": 0}).sizes == {0: 0, 1: 0, 2: 0}


# --- What does not ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "bindings", "sizes", "message"),
    [
        (SPMV, {"B": A}, {}, "the kernel has no operand 'B'; it has A, x, y"),
        (SPMV, {"a": A}, {}, "the kernel has no operand 'a'"),
        (SPMV, {"arg3": A}, {}, "no operand 'arg3'; did you mean 'arg[0-2]'"),
        (SPMM, {"result": np.zeros((3, 3))}, {}, "no operand 'result'"),
        (SPMV, {"A": A, "arg0": A}, {}, "'A' is bound twice"),
        (SPMV, {"x": np.zeros(4), "arg1": np.zeros(4)}, {}, "'x' is bound twice"),
        (
            SPMV,
            {"A": A, "x": np.zeros(5)},
            {},
            "what is bound to 'x' gives size 5, but what is bound to 'A' gives 4 .dimension 1 of 'A', dimension 0 of 'x'.",
        ),
        (SPMV, {"A": A, "y": np.zeros(4)}, {}, "what is bound to 'y' gives size 4, but what is bound to 'A' gives 3"),
        (SPMV, {"A": A}, {"M": 4}, "--size M gives size 4, but what is bound to 'A' gives 3"),
        (SPMM, {"B": np.zeros((4, 9))}, {"K": 8}, "--size K gives size 8, but what is bound to 'B' gives 9"),
        (SPMM, {}, {"K": 8, "d1": 9}, "--size d1 gives size 9, but --size K gives 8"),
        (SPMM, {}, {"K": -1}, "--size K gives a size of -1"),
        (SPMM, {}, {"k": 8}, "no size is named 'k'; there are d0, d1, d2, M, N, K, and NAME.0"),
        (SPMV, {}, {"K": 8}, "no size is named 'K'; there are d0, d1, M, N, and"),
        (SPMM, {}, {"B.2": 8}, "no size is named 'B.2'"),
        (SPMM, {}, {"B.x": 8}, "no size is named 'B.x'"),
        (SPMM, {}, {"D.0": 8}, "no operand 'D'"),
        (SPMV, {"x": np.zeros((4, 1))}, {}, "has 2 dimensions, 'x' has 1"),
        (SPMV, {"x": np.zeros(4, complex)}, {}, "holds complex128, which is no real number type"),
        (SPMV, {"x": np.array(["a"] * 4)}, {}, "holds <U1, which is no real number type"),
        (SPMV, {"x": [None, 1, 2, 3]}, {}, "holds object"),
        (SPMV, {"A": np.zeros(3)}, {}, "has 1 dimension"),
        (SPMV, {"A": 3}, {}, "neither a SciPy sparse matrix nor a NumPy array"),
        (SPMV, {"A": A.astype(complex)}, {}, "complex"),
    ],
)
def test_what_does_not_agree(c: Computation, bindings: dict[str, Any], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bind(c, bindings, sizes)


def test_static_shapes_must_agree() -> None:
    text = """func.func @f(%A: tensor<3x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
      %r = linalg.matvec ins(%A, %x : tensor<3x?xf32>, tensor<?xf32>) outs(%y : tensor<3xf32>) -> tensor<3xf32>
      return %r : tensor<3xf32>
    }"""
    c = computation(text)
    assert bind(c, {}).sizes == {0: 3}
    with pytest.raises(InputError, match="what is bound to 'A' gives size 4, but the type of 'A' gives 3"):
        bind(c, {"A": A.T})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"1 2 3", "'x' is dense: bind a .npy file"),
        ("x.mtx", b"", "'x' is dense: bind a .npy file"),
        ("x.npy", None, "cannot be read as .npy"),
        ("x.npy", b"", "cannot be read as .npy"),
        ("x.npy", b"\x93NUMPY\x01\x00garbage", "cannot be read as .npy"),
        ("x.npy", b"hello", "cannot be read as .npy"),
    ],
)
def test_files_that_are_no_array(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        bind(SPMV, {"x": path})
    assert str(path) in str(caught.value)


def test_objects_in_a_file_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read as"):
        bind(SPMV, {"x": tmp_path / "x.npy"})


def test_a_size_that_is_not_known_is_asked_for() -> None:
    problem = bind(SPMM, {"A": A})
    with pytest.raises(InputError, match=r"the size of dimension 1 of 'B' is not known; bind an operand .* --size K="):
        problem.shape(SPMM.inputs[1])


# --- Packages -----------------------------------------------------------------------------------------


def test_sizes_of_a_compiled_kernel_are_fixed(kernel_file: Write) -> None:
    package = compile_file(kernel_file(matmul()), {"A": A}, {"K": 8}).package
    assert package.sizes == {"d1": 8}
    assert bind_package(package, {"A": A}).sizes == {0: 3, 1: 8, 2: 4}
    with pytest.raises(InputError, match="--size K gives size 9, but the compiled kernel gives 8"):
        run(package, {"A": A}, {"K": 9})
    with pytest.raises(InputError, match="what is bound to 'B' gives size 7, but the compiled kernel gives 8"):
        run(package, {"A": A, "B": np.zeros((4, 7))})


def test_sizes_of_the_matrix_are_not_fixed(kernel_file: Write) -> None:
    package = compile_file(kernel_file(matvec()), {"A": A}).package
    assert package.sizes == {}
    assert run(package, {"A": sp.csr_array((100, 50))}).output.shape == (100,)


def test_a_run_needs_the_matrix_and_all_sizes(kernel_file: Write) -> None:
    package = compile_file(kernel_file(matmul()), {"A": A}).package
    with pytest.raises(InputError, match=r"bind a matrix to 'A' \(--bind A=matrix.mtx\)"):
        run(package, {}, {"K": 8})
    with pytest.raises(InputError, match="--size K="):
        run(package, {"A": A})
    with pytest.raises(InputError, match="no device is named 'tpu'; there are simt and cuda"):
        run(package, {"A": A}, {"K": 8}, device="tpu")


# --- The command line's words -------------------------------------------------------------------------


def test_words() -> None:
    assert parse_bindings(["A=a.mtx", " x =b=c.npy"]) == {"A": "a.mtx", "x": "b=c.npy"}
    assert parse_sizes(["K=64", "B.1 = 7"]) == {"K": 64, "B.1": 7}
    assert parse_bindings([]) == parse_sizes([]) == {}


@pytest.mark.parametrize("word", ["A", "=a.mtx", "A=", "", "=", " =a.mtx"])
def test_words_that_are_no_binding(word: str) -> None:
    with pytest.raises(InputError, match="is no binding; write OPERAND=FILE"):
        parse_bindings([word])


@pytest.mark.parametrize("word", ["K", "K=", "K=x", "K=-1", "K=1.5", "K=1e3", "=3", "K=²", "K=0x10", ""])
def test_words_that_are_no_size(word: str) -> None:
    with pytest.raises(InputError, match="no size"):
        bind(SPMM, {}, parse_sizes([word]))


def test_words_that_come_twice() -> None:
    with pytest.raises(InputError, match="'A' is bound twice"):
        parse_bindings(["A=a", "A=b"])
    with pytest.raises(InputError, match="K"):
        parse_sizes(["K=1", "K=2"])
