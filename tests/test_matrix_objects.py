"""Matrices and arrays of other libraries: torch and CuPy by stand-ins that have the attributes which are used, and for real
where they are installed; arrays in every layout, through the protocols of NumPy and DLPack, to the kernel's result.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import computation, matmul, matvec

from sparseditto.compiler.api import compile_file, run
from sparseditto.compiler.matrix_objects import as_array, from_object
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.problem import bind
from sparseditto.dialects.errors import InputError

Write = Callable[[str], Path]

A = sp.csr_array(np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 0, 4], [0, 0, 5, 0]], np.float32))
SPMV = computation(matvec())


# ------------------------------------------------------------------------------------------------------- torch, by stand-in


class Tensor:
    """What is used of a strided `torch.Tensor`."""

    layout: Any = "torch.strided"

    def __init__(self, array: Any, dtype: str | None = None, device: str = "cpu") -> None:
        self.array = np.asarray(array)
        self.dtype = dtype or f"torch.{self.array.dtype}"
        self.device = device
        self.shape = self.array.shape

    def numpy(self, force: bool = False) -> Any:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        if self.device != "cpu" and not force:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.array if self.device == "cpu" else self.array.copy()

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32), device=self.device)

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("torch tensors are taken by their own methods")

    __array__ = __dlpack__


class Sparse(Tensor):
    """What is used of a sparse one."""

    def __init__(self, layout: str, shape: tuple[int, ...], device: str = "cpu", **parts: Any) -> None:
        self.layout = f"torch.sparse_{layout}"
        self.shape = shape
        for name, part in parts.items():
            tensor = part if isinstance(part, Tensor) else Tensor(part, device=device)
            setattr(self, name, lambda tensor=tensor: tensor)

    def numpy(self, force: bool = False) -> Any:
        raise TypeError("can't convert Sparse layout tensor to numpy")


for stand_in in (Tensor, Sparse):
    stand_in.__module__ = "torch"


def torch_tensors(device: str = "cpu") -> dict[str, Any]:
    """`A` in every layout.  torch has indices of 64 bits."""
    csc, bsr, coo = A.tocsc(), A.tobsr((2, 2)), A.tocoo()
    bsc = sp.csr_array(A.T).tobsr((2, 2))  # of the transposed matrix, with transposed blocks
    long = np.int64
    return {
        "coo": Sparse("coo", (4, 4), device, _indices=np.array([coo.row, coo.col], long), _values=coo.data),
        "csr": Sparse(
            "csr", (4, 4), device, crow_indices=A.indptr.astype(long), col_indices=A.indices.astype(long), values=A.data
        ),
        "csc": Sparse(
            "csc", (4, 4), device, ccol_indices=csc.indptr.astype(long), row_indices=csc.indices.astype(long), values=csc.data
        ),
        "bsr": Sparse(
            "bsr", (4, 4), device, crow_indices=bsr.indptr.astype(long), col_indices=bsr.indices.astype(long), values=bsr.data
        ),
        "bsc": Sparse(
            "bsc",
            (4, 4),
            device,
            ccol_indices=bsc.indptr.astype(long),
            row_indices=bsc.indices.astype(long),
            values=bsc.data.transpose(0, 2, 1),
        ),
    }


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_torch_layouts(layout: str, device: str) -> None:
    matrix = from_object(torch_tensors(device)[layout])
    assert matrix.csr.toarray().tolist() == A.toarray().tolist()
    assert matrix.csr.dtype == np.float32
    assert matrix.csr.indices.dtype == np.int32
    assert matrix.csr.has_canonical_format


def test_torch_blocks_need_not_be_square() -> None:
    wide = sp.csr_array(np.arange(24.0).reshape(4, 6))
    bsr = sp.csr_array(wide.T).tobsr((3, 2))
    tensor = Sparse("bsc", (4, 6), ccol_indices=bsr.indptr, row_indices=bsr.indices, values=bsr.data.transpose(0, 2, 1))
    assert from_object(tensor).csr.toarray().tolist() == wide.toarray().tolist()


def test_torch_is_shared_on_the_host() -> None:
    tensor = torch_tensors()["csr"]
    assert np.shares_memory(from_object(tensor).csr.data, A.data)


def test_torch_not_coalesced() -> None:
    tensor = Sparse("coo", (2, 3), _indices=np.array([[1, 0, 1], [2, 0, 2]]), _values=np.array([1.0, 2, 4]))
    matrix = from_object(tensor)
    assert matrix.csr.toarray().tolist() == [[2, 0, 0], [0, 0, 5]]
    assert matrix.notes == ("1 duplicate entry was summed",)


def test_torch_bfloat16() -> None:
    values = Tensor(np.array([1.5, -2.0]), dtype="torch.bfloat16", device="cuda")
    tensor = Sparse("csr", (1, 3), "cuda", crow_indices=[0, 2], col_indices=[0, 2], values=values)
    assert from_object(tensor).csr.toarray().tolist() == [[1.5, 0, -2]]
    assert as_array(values).dtype == np.float32


def test_torch_dense() -> None:
    assert from_object(Tensor(A.toarray(), device="cuda")).csr.nnz == 5
    shared = np.arange(4.0)
    assert np.shares_memory(as_array(Tensor(shared)), shared)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Sparse("coo", (2, 2, 2), _indices=np.zeros((3, 0), int), _values=[]), "a torch tensor of 3 dimensions is no matrix"),
        (Sparse("csr", (5, 2, 2)), "nor a batch of them"),
        (Sparse("coo", (2, 2), _indices=np.zeros((1, 1), int), _values=np.ones((1, 2))), "with dense dimensions"),
        (Sparse("semi", (2, 2)), "layout torch.sparse_semi cannot be read; these can"),
        (Sparse("csr", (1, 2), crow_indices=[0, 1], col_indices=[2], values=[1.0]), "'indices' holds 2"),
        (Sparse("csr", (1, 2), crow_indices=[0, 1], col_indices=[1], values=[1j]), "complex"),
        (Sparse("bsc", (1, 2), ccol_indices=[0, 1], row_indices=[0], values=[1.0]), "have 1 dimensions; 3 are needed"),
    ],
)
def test_torch_refusals(tensor: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_object(tensor)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # that it is new, and not checked
def test_torch_for_real() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    dense = torch.tensor(A.toarray())
    for tensor in (
        dense,
        dense.to_sparse(),
        dense.to_sparse_csr(),
        dense.to_sparse_csc(),
        dense.to_sparse_bsr((2, 2)),
        dense.to_sparse_bsc((2, 2)),
    ):
        assert from_object(tensor).csr.toarray().tolist() == A.toarray().tolist()
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (2, 2), requires_grad=True)
    assert from_object(twice).csr.toarray().tolist() == [[0, 3], [0, 0]]
    assert as_array(dense.to(torch.bfloat16).t()[::2]).tolist() == A.toarray().T[::2].tolist()
    with pytest.raises(InputError, match="bound to a dense operand"):
        as_array(dense.to_sparse())


# -------------------------------------------------------------------------------------------------------- CuPy, by stand-in


class OnGpu:
    """What is used of `cupy.ndarray` and of `cupyx.scipy.sparse`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value

    def __array__(self, *_: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class OnGpuSparse(OnGpu):
    pass


OnGpu.__module__ = "cupy"
OnGpuSparse.__module__ = "cupyx.scipy.sparse._csr"


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dia"])
def test_cupy(kind: str) -> None:
    assert from_object(OnGpuSparse(A.asformat(kind))).csr.toarray().tolist() == A.toarray().tolist()
    assert from_object(OnGpu(A.toarray())).csr.nnz == 5
    assert as_array(OnGpu(np.arange(3))).tolist() == [0, 1, 2]


def test_cupy_for_real() -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    sparse = pytest.importorskip("cupyx.scipy.sparse")
    try:
        matrix = sparse.csr_matrix(sp.csr_matrix(A))
    except cupy.cuda.runtime.CUDARuntimeError as e:
        pytest.skip(f"there is no GPU: {e}")
    assert from_object(matrix).csr.toarray().tolist() == A.toarray().tolist()
    assert as_array(cupy.arange(3)).tolist() == [0, 1, 2]


def test_nothing_is_imported() -> None:
    import subprocess
    import sys

    code = "import sparseditto.compiler.matrix_objects, sys; print({'torch', 'cupy', 'scipy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "set()"


# -------------------------------------------------------------------------------------------------------- dense operands


class Interface:
    """Only `__array_interface__`."""

    def __init__(self, array: Any) -> None:
        self.kept = array
        self.__array_interface__ = array.__array_interface__


class Dlpack:
    """Only DLPack."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.kept, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.kept.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def fortran(b: Any) -> Any:
    return np.asfortranarray(b)


def strided(b: Any) -> Any:
    wide = np.full((b.shape[0] * 2, b.shape[1] * 3), np.nan).astype(b.dtype)
    wide[::2, 1::3] = b
    return wide[::2, 1::3]


def reversed_(b: Any) -> Any:
    return np.ascontiguousarray(b[::-1, ::-1])[::-1, ::-1]


def offset(b: Any) -> Any:
    """Neither at the start of its buffer nor aligned."""
    raw = np.zeros(b.nbytes + 3, np.uint8)
    raw[3:] = np.frombuffer(b.tobytes(), np.uint8)
    return raw[3:].view(b.dtype).reshape(b.shape)


def read_only(b: Any) -> Any:
    b = b.copy()
    b.setflags(write=False)
    return b


def swapped(b: Any) -> Any:
    return b.astype(b.dtype.newbyteorder())


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda b: b,
    "by columns": fortran,
    "strided": strided,
    "negative strides": reversed_,
    "offset": offset,
    "read-only": read_only,
    "byte order": swapped,
    "transposed": lambda b: np.ascontiguousarray(b.T).T,
    "list": lambda b: b.tolist(),
    "interface": Interface,
    "interface, strided": lambda b: Interface(strided(b)),
    "dlpack": Dlpack,
    "dlpack, by columns": lambda b: Dlpack(fortran(b)),
    "torch": lambda b: Tensor(reversed_(b), device="cpu"),
    "cupy": OnGpu,
    "memory": memoryview,
}
B = np.arange(12.0).reshape(4, 3) - 5


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> KernelPackage:
    path = tmp_path_factory.mktemp("kernels") / "spmm.mlir"
    path.write_text(matmul())
    return compile_file(path, {"A": A}, {"K": 3}).package


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_result(package: KernelPackage, layout: str) -> None:
    b = LAYOUTS[layout](B)
    before = np.array(b if isinstance(b, np.ndarray) else B)
    result = run(package, {"A": A, "B": b}, device="simt", verify=True)
    assert result.check is not None
    assert result.check.passed
    np.testing.assert_allclose(result.output, A @ B, rtol=1e-6)
    if isinstance(b, np.ndarray):
        assert np.array_equal(b, before)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float64", "longdouble"]
)
def test_every_type_gives_the_result(package: KernelPackage, dtype: str) -> None:
    b = np.abs(B).astype(dtype)
    result = run(package, {"A": A, "B": b}, device="simt")
    np.testing.assert_allclose(result.output, A @ b.astype(np.float32), rtol=1e-6)


def test_broadcast_operands(package: KernelPackage) -> None:
    b = np.broadcast_to(np.float64(2), (4, 3))
    np.testing.assert_allclose(run(package, {"A": A, "B": b}, device="simt").output, A @ b)


@pytest.mark.parametrize("value", [np.arange(4.0), [0, 1, 2, 3], Dlpack(np.arange(4.0)), Interface(np.arange(4)), range(4)])
def test_vectors_of_every_kind(value: Any) -> None:
    assert bind(SPMV, {"x": value}).dense["x"].tolist() == [0, 1, 2, 3]


def test_integers_that_are_rounded_are_noted() -> None:
    problem = bind(SPMV, {"x": np.array([2**24 + 1, -(2**40) - 1, 3, 2**24])})
    assert problem.notes == ("x: 2 integers beyond 16777216 may be rounded to float32",)
    assert bind(SPMV, {"x": np.array([255, 0], np.uint8)}).notes == ()
    assert bind(computation(matvec("f64")), {"x": np.array([2**24 + 1])}).notes == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array(3.0), "has 0 dimensions, 'x' has 1"),
        (3.0, "has 0 dimensions, 'x' has 1"),
        (np.ones((4, 1)), "has 2 dimensions, 'x' has 1"),
        (A, "a sparse csr_array is bound to a dense operand"),
        (OnGpuSparse(A), "a sparse OnGpuSparse is bound to a dense operand"),
        (torch_tensors()["csr"], "a sparse Sparse is bound to a dense operand"),
        (np.ma.masked_array([1.0, 2, 3, 4], [0, 1, 0, 0]), "some elements are masked; fill them first"),
        (Dlpack(np.arange(4.0), device=2), "is in the memory of a device .DLPack type 2.; copy it to the host"),
        (Dlpack(np.array(["a"])), "cannot be read as an array"),
        (np.ones(4, "c8"), "holds complex64, which is no real number type"),
        (np.zeros(4, [("a", "f4")]), "which is no real number type"),
        (np.array([1, None]), "holds object"),
        ([[1, 2], [3]], "cannot be read as an array"),
        (np.zeros(4, "M8[s]"), "no real number type"),
    ],
)
def test_what_is_no_dense_operand(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        bind(SPMV, {"x": value})
    assert caught.value.where == "'x'"


def test_masked_arrays_are_no_matrix() -> None:
    with pytest.raises(InputError, match="some elements are masked"):
        from_object(np.ma.masked_array(np.ones((2, 2)), [[0, 1], [0, 0]]))


@pytest.mark.parametrize("value", [Interface(A.toarray()), Dlpack(fortran(A.toarray())), Dlpack(strided(A.toarray()))])
def test_dense_arrays_as_matrices(value: Any) -> None:
    assert from_object(value).csr.toarray().tolist() == A.toarray().tolist()
