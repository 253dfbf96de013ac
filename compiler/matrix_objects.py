"""Take matrices and dense arrays from the objects of other libraries, without importing any of them.

A library is known by the module of an object's class: torch (sparse COO, CSR, CSC, BSR, BSC, and strided tensors) and CuPy;
everything else is taken through the array protocols of NumPy and DLPack.  What is on the host already is shared, not
copied, where its types are ours; what is on a GPU is copied to the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.matrix import Matrix, from_dense
from sparseditto.compiler.matrix_io import from_parts, from_scipy
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_ON_HOST = (1, 3, 11, 13)  # DLPack's CPU, CUDA host, ROCm host and CUDA managed memory
_FAILURES = (RuntimeError, TypeError, ValueError, BufferError, AttributeError)  # what other libraries raise

# Which methods of a compressed torch tensor give its positions and indices, and what the field calls it.
_TORCH_LAYOUTS = {
    "torch.sparse_csr": ("crow_indices", "col_indices", "csr"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "csc"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "bsr"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "bsc"),
}


def library_of(value: Any) -> str:
    """The package that an object's class comes from."""
    return type(value).__module__.split(".", 1)[0]


def from_object(value: Any) -> Matrix:
    """The matrix that an object of SciPy, NumPy, torch or CuPy is; a dense one's zeros are not stored.

    Raises `InputError` when it is no matrix of real numbers.
    """
    library = library_of(value)
    if library == "torch" and str(getattr(value, "layout", "torch.strided")) != "torch.strided":
        return _from_torch(value)
    if library in ("cupyx", "cupy"):
        return from_object(_to_host(value.get, value))
    if isinstance(value, np.ma.MaskedArray) or (_is_array(value) and not isinstance(value, np.ndarray)):
        return from_dense(as_array(value))
    return from_scipy(value)


def as_array(value: Any) -> Array:
    """The dense array that an object is, sharing its memory where it can be.

    Raises `InputError`, with the reason, for sparse and masked arrays and for memory that cannot be reached.
    """
    import scipy.sparse

    library = library_of(value)
    if scipy.sparse.issparse(value) or library == "cupyx" or _is_sparse_torch(value):
        raise InputError(f"a sparse {type(value).__name__} is bound to a dense operand; bind it as a dense array")
    if isinstance(value, np.ma.MaskedArray):
        raise InputError("some elements are masked; fill them first (array.filled(0))")
    if library == "torch":
        return _torch_array(value)
    if library == "cupy":
        return as_array(_to_host(value.get, value))
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray) and not hasattr(value, "__array_interface__"):
        return _from_dlpack(value)
    return _to_host(lambda: np.asarray(value), value)


def _is_array(value: Any) -> bool:
    return any(hasattr(value, name) for name in ("__array_interface__", "__dlpack__")) and not hasattr(value, "tocsr")


def _from_dlpack(value: Any) -> Array:
    device = _to_host(value.__dlpack_device__, value)
    if device[0] not in _ON_HOST:
        raise InputError(
            f"a {type(value).__name__} is in the memory of a device (DLPack type {int(device[0])}); copy it to the host"
        )
    return _to_host(lambda: np.from_dlpack(value), value)


def _to_host(read: Callable[[], Any], value: Any) -> Any:
    """What `read` gives; what another library says against it, in one of our errors."""
    try:
        return read()
    except _FAILURES as e:
        raise InputError(f"a {type(value).__name__} cannot be read as an array: {e}") from e


# ---------------------------------------------------------------------------------------------------------------- torch


def _is_sparse_torch(value: Any) -> bool:
    return library_of(value) == "torch" and "sparse" in str(getattr(value, "layout", ""))


def _torch_array(tensor: Any) -> Array:
    """NumPy's view of a strided tensor, or a copy of one that is on a GPU.  NumPy has no bfloat16; float32 holds its values."""
    if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
        tensor = _to_host(tensor.float, tensor)
    return np.asarray(_to_host(lambda: tensor.numpy(force=True), tensor))


def _from_torch(tensor: Any) -> Matrix:
    layout = str(tensor.layout)
    shape = tuple(int(size) for size in tensor.shape)
    if len(shape) != 2:
        raise InputError(f"a torch tensor of {len(shape)} dimensions is no matrix, nor a batch of them")
    if layout == "torch.sparse_coo":
        return _from_torch_coo(tensor, shape)
    if layout not in _TORCH_LAYOUTS:
        raise InputError(f"a torch tensor of layout {layout} cannot be read; these can: COO, CSR, CSC, BSR and BSC")
    starts, indices, kind = _TORCH_LAYOUTS[layout]
    values = _torch_array(tensor.values())
    parts = {"indptr": _torch_array(getattr(tensor, starts)()), "indices": _torch_array(getattr(tensor, indices)())}
    if kind != "bsc":
        return from_parts(kind, shape, {"data": values, **parts})
    if values.ndim != 3:
        raise InputError(f"the values of a torch BSC tensor have {values.ndim} dimensions; 3 are needed")
    turned = from_parts("bsr", shape[::-1], {"data": values.transpose(0, 2, 1), **parts})
    return Matrix(turned.csr.T.tocsr(), turned.notes)


def _from_torch_coo(tensor: Any, shape: tuple[int, ...]) -> Matrix:
    """A COO tensor, coalesced or not: what occurs twice is summed here."""
    indices, values = _torch_array(tensor._indices()), _torch_array(tensor._values())
    if indices.ndim != 2 or indices.shape[0] != 2 or values.ndim != 1:
        raise InputError("a torch COO tensor with dense dimensions is no sparse matrix; use x.to_dense().to_sparse()")
    return from_parts("coo", shape, {"data": values, "row": indices[0], "col": indices[1]})
