"""How much of a candidate's output is compared with float64, and which lines of it: all of a small one, else a sample."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from sparseditto.compiler.computation import Computation, Operand
from sparseditto.compiler.dtypes import dtype_of
from sparseditto.compiler.execute import Inputs
from sparseditto.compiler.reference import Check, compare, evaluate

FULL_BYTES = 64 << 20  # an output up to this size is compared as a whole for every candidate …
FULL_PRODUCTS = 50_000_000  # … when the reference takes no more multiplications than this (about a second)
SAMPLE_PRODUCTS = 20_000_000

_Windows = tuple[tuple[int, int], ...]
"""(first, after last) lines, ascending, disjoint."""
Fetch = Callable[[slice | None, int], Any]
"""`fetch(lines, axis)` gives that part of the output along that axis, as an array; None is all of it."""


class Checker:
    """Compares outputs with float64: small ones as a whole, others on windows of lines that show most kinds of faults.

    A line is what one row (or column) of the sparse operand writes.  The windows hold the first lines, the last ones, some
    evenly between, the longest and an empty one.
    """

    _CHUNK = 1 << 22  # components that are compared at a time in a full check

    def __init__(self, computation: Computation, inputs: Inputs) -> None:
        self.computation, self.inputs = computation, inputs
        sparse, output = computation.sparse, computation.output
        self.dim = next(d for d in sparse.dims if d in output.dims)
        self.axis = output.dims.index(self.dim)
        self.by_rows = self.dim == sparse.dims[0]
        self.matrix = inputs.matrix if self.by_rows else inputs.matrix.tocsc()
        self.shape = inputs.output_shape
        self.extent = self.shape[self.axis]
        self.width = math.prod(self.shape) // max(1, self.extent)
        itemsize = dtype_of(output.dtype).itemsize
        self.whole = math.prod(self.shape) * itemsize <= FULL_BYTES and inputs.matrix.nnz * max(1, self.width) <= FULL_PRODUCTS
        self._known: dict[_Windows, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}

    def windows(self) -> _Windows:
        """What a candidate is checked on."""
        if self.whole:
            return ((0, self.extent),)
        return tuple(sample_lines(self._lengths(), max(1, SAMPLE_PRODUCTS // max(1, self.width))))

    def check(self, fetch: Fetch, full: bool) -> dict[str, Any]:
        """Compare what `fetch` gives of the output; `full` with all of it."""
        sampled = not (self.whole or full)
        checks: list[Check] = []
        for windows in self._all_lines() if full and not self.whole else [self.windows()]:
            parts = [self._part(fetch, start, end) for start, end in windows]
            part = parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis)
            expected, scale = self._expected(windows, keep=self.whole or sampled)
            checks += [self._placed(check, windows) for check in _compare(part, expected, scale, self.computation.sum_dtype)]
        merged = merge_checks(checks)
        worst = merged.worst if math.isfinite(merged.worst) else None  # JSON has no word for others
        return {**merged.to_json(), "worst": worst, "sampled": sampled}

    def _lengths(self) -> np.ndarray[Any, Any]:
        return np.diff(self.matrix.indptr)

    def _all_lines(self) -> list[_Windows]:
        step = max(1, self._CHUNK // max(1, self.width))
        return [((start, min(start + step, self.extent)),) for start in range(0, self.extent, step)]

    def _part(self, fetch: Fetch, start: int, end: int) -> np.ndarray[Any, Any]:
        """Lines of the output without padding."""
        part = fetch(None if (start, end) == (0, self.extent) else slice(start, end), self.axis)
        shape = [end - start if k == self.axis else n for k, n in enumerate(self.shape)]
        return part[tuple(slice(n) for n in shape)]

    def _placed(self, check: Check, windows: _Windows) -> Check:
        """The check with the first wrong place as it is in the whole output."""
        if check.first_wrong is None:
            return check
        place = list(check.first_wrong)
        for start, end in windows:
            if place[self.axis] < end - start:
                place[self.axis] += start
                break
            place[self.axis] -= end - start
        return replace(check, first_wrong=tuple(place))

    def _expected(self, windows: _Windows, keep: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Reference and scale of the lines in `windows`, one after the other."""
        if windows in self._known:
            return self._known[windows]
        if windows == ((0, self.extent),):
            found = evaluate(self.computation, self.inputs.matrix, self.inputs.dense, self.inputs.initial, self.inputs.scalars)
        else:
            found = self._evaluate(np.concatenate([np.arange(start, end) for start, end in windows]))
        if keep:
            self._known[windows] = found
        return found

    def _evaluate(self, lines: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The reference of some lines, from the parts of the operands that they read."""
        matrix = self.matrix[lines] if self.by_rows else self.matrix[:, lines]
        taken = {self.dim: lines}
        other = next(d for d in self.computation.sparse.dims if d != self.dim)
        if other not in self.computation.output.dims:
            taken[other], inner = np.unique(matrix.indices, return_inverse=True)
            shape = (len(lines), len(taken[other]))
            data = matrix.data, inner.astype(matrix.indices.dtype), matrix.indptr
            matrix = type(matrix)(data, shape=shape if self.by_rows else shape[::-1])
        operands = {o.name: o for o in self.computation.operands}
        dense = {name: _take(operands[name], array, taken) for name, array in self.inputs.dense.items()}
        initial = self.inputs.initial
        if initial is not None:
            initial = _take(self.computation.output, initial, taken)
        return evaluate(self.computation, matrix.tocsr(), dense, initial, self.inputs.scalars)


def _take(operand: Operand, array: np.ndarray[Any, Any], taken: Mapping[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The part of a dense operand at the indices `taken` of some iteration dimensions."""
    for axis, d in enumerate(operand.dims):
        if d in taken:
            array = np.take(array, taken[d], axis)
    return array


def sample_lines(lengths: np.ndarray[Any, Any], most: int, width: int = 32, count: int = 32) -> list[tuple[int, int]]:
    """Windows of lines: the first, the last, `count` between, the longest (up to `most` entries of them), an empty one."""
    extent = len(lengths)
    starts = np.linspace(0, max(0, extent - width), count).astype(np.int64)
    lines = {int(line) for start in starts for line in range(start, min(start + width, extent))}
    for line in np.argsort(lengths)[::-1][:16] if extent < 1 << 22 else np.argpartition(lengths, -16)[-16:]:
        if not lines or lengths[line] <= most or int(line) == int(np.argmax(lengths)):
            lines.add(int(line))
            most -= int(lengths[line])
    empty = np.flatnonzero(lengths == 0)
    lines |= {int(line) for line in empty[:1]}
    windows: list[tuple[int, int]] = []
    for line in sorted(lines):
        if windows and windows[-1][1] == line:
            windows[-1] = (windows[-1][0], line + 1)
        else:
            windows.append((line, line + 1))
    return windows


def _compare(
    result: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], scale: np.ndarray[Any, Any], sum_dtype: str | None
) -> list[Check]:
    """Compare in pieces that stay in the caches, on several threads."""
    lines = len(result) if result.ndim else 0
    step = max(1, (1 << 16) * max(1, lines) // max(1, result.size))

    def piece(first: int) -> Check:
        part = slice(first, first + step)
        found = compare(result[part], expected[part], scale[part], sum_dtype)
        if found.first_wrong is None:
            return found
        return replace(found, first_wrong=(found.first_wrong[0] + first, *found.first_wrong[1:]))

    firsts = range(0, max(1, lines), step)
    if len(firsts) < 4:
        return [piece(first) for first in firsts]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        return list(threads.map(piece, firsts))


def merge_checks(checks: Sequence[Check]) -> Check:
    """One check of all components of several."""
    wrong = [check for check in checks if not check.passed]
    return replace(
        checks[0],
        worst=max(check.worst for check in wrong or checks),
        wrong=sum(check.wrong for check in checks),
        components=sum(check.components for check in checks),
        skipped=sum(check.skipped for check in checks),
        first_wrong=wrong[0].first_wrong if wrong else None,
    )
