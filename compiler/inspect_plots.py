"""Pictures of a matrix: its rows by length and where its entries are, in characters and as PNG.

A spy plot counts the entries in each cell of a raster.  In characters it is braille, a dot for each cell that has an entry;
where this would fill more than half of the raster, it is shades, by the count relative to the fullest cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.inspect_pattern import Bin
from sparseditto.compiler.matrix import MAX_FILL
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    Array = np.ndarray[Any, np.dtype[Any]]

LEAST_WIDTH, MOST_WIDTH, MOST_HEIGHT = 20, 72, 24  # of a plot, in characters
_THIN = 16  # dots that a side has at least, where the matrix has as many rows or columns
_SHADES = {True: " ░▒▓█", False: " .:*#"}
_THRESHOLDS = (1 / 64, 1 / 8, 1 / 2)  # of the fullest cell, where the second, third and last shade begin
_PIXELS = 600
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def histogram_text(bins: Sequence[Bin], width: int) -> list[str]:
    """A line a bin from the first that has rows, with a bar as long as its share of rows; no bin with rows is without one."""
    width = max(width, LEAST_WIDTH)
    bins = bins[next((k for k, b in enumerate(bins) if b.rows), 0) :]
    labels = [str(b.least) if b.least == b.most else f"{b.least}-{b.most}" for b in bins]
    counts = [str(b.rows) for b in bins]
    left, right = max(map(len, labels), default=0), max(map(len, counts), default=0)
    space = max(width - left - right - 4, 4)
    most = max((b.rows for b in bins), default=0) or 1
    bars = ["#" * (math.ceil(b.rows * space / most)) for b in bins]
    return [
        f"{label:>{left}} | {count:>{right}} {bar}".rstrip() for label, count, bar in zip(labels, counts, bars, strict=True)
    ]


def spy_text(csr: csr_array, width: int, unicode: bool = True) -> list[str]:
    """The spy plot in a frame of at most `width` characters, and a line that says what a mark in it is.

    `unicode` says whether more than ASCII can be shown.
    """
    rows, columns = csr.shape
    if not rows or not columns:
        return []
    inner = min(max(width, LEAST_WIDTH), MOST_WIDTH) - 2
    height, dots = raster(rows, columns, 4 * MOST_HEIGHT, 2 * inner)
    counts = spy_counts(csr, height, dots)
    if unicode and 2 * np.count_nonzero(counts) <= counts.size:
        lines, mark = _braille(counts > 0), "a dot: entries"
    else:
        height, dots = raster(rows, columns, 2 * MOST_HEIGHT, inner)  # a character is about as high as two are wide
        height = max(height // 2, 1)
        lines, mark = (
            _shaded(spy_counts(csr, height, dots), _SHADES[unicode]),
            f"{_SHADES[unicode].strip()}: few to many entries",
        )
    edge = "+" + "-" * len(lines[0]) + "+"
    cell = f"{mark} among {rows / height:.4g} x {columns / dots:.4g} places"
    return [edge, *(f"|{line}|" for line in lines), edge, cell]


def raster(rows: int, columns: int, most_high: int, most_wide: int) -> tuple[int, int]:
    """Height and width of a raster for a matrix: to scale, but that no side becomes a thin line, and none finer than 1 : 1."""
    scale = max(rows / most_high, columns / most_wide, 1)
    height, width = math.ceil(rows / scale), math.ceil(columns / scale)
    return max(height, min(rows, _THIN)), max(width, min(columns, _THIN))


def spy_counts(csr: csr_array, height: int, width: int) -> Array:
    """The number of entries in each cell of a raster of `height` x `width`."""
    rows, columns = csr.shape
    row = _cells(rows, height)
    if columns <= MAX_FILL * (csr.nnz + 2**14):
        cell = _cells(columns, width)[csr.indices]
    else:  # a table of all columns would be far larger than the matrix
        cell = (csr.indices / (columns / width)).astype(np.int32)
    cell += np.repeat(row * np.int32(width), np.diff(csr.indptr))
    return np.bincount(cell, minlength=height * width).reshape(height, width)


def _cells(size: int, cells: int) -> Array:
    """The cell that each of `size` indices falls in, the cells as equal as can be."""
    return (np.arange(size) * cells // max(size, 1)).astype(np.int32)


def _braille(dots: Array) -> list[str]:
    """A character for each 4 x 2 dots."""
    height, width = (-(-size // unit) for size, unit in zip(dots.shape, _DOTS.shape, strict=True))
    whole = np.zeros((4 * height, 2 * width), dtype=bool)
    whole[: dots.shape[0], : dots.shape[1]] = dots
    codes = (whole.reshape(height, 4, width, 2) * _DOTS[None, :, None, :]).sum(axis=(1, 3))
    return ["".join(chr(0x2800 + int(code)) for code in line) for line in codes]


def _shaded(counts: Array, shades: str) -> list[str]:
    share = counts / max(int(counts.max()), 1)
    level = (counts > 0).astype(int) + sum((share >= threshold).astype(int) for threshold in _THRESHOLDS)
    return ["".join(shades[shade] for shade in line) for line in level]


# ------------------------------------------------------------------------------------------------------------------ PNG


def write_png(csr: csr_array, bins: Sequence[Bin], folder: Path, name: str) -> list[Path]:
    """Write `{name}-rows.png` and `{name}-spy.png` there.  Raises `InputError` without matplotlib, or when it cannot write."""
    try:
        import matplotlib
    except ModuleNotFoundError as e:
        raise InputError(f"PNGs need matplotlib ({e}): pip install 'sparseditto[plot]'") from e
    matplotlib.use("agg")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_rows_png(bins, folder / f"{name}-rows.png"), _spy_png(csr, folder / f"{name}-spy.png")]
    except OSError as e:
        raise InputError(f"cannot write there: {e.strerror or e}", where=str(folder)) from e


def _rows_png(bins: Sequence[Bin], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    labels = [str(b.least) if b.least == b.most else f"{b.least}-{b.most}" for b in bins]
    axes.bar(labels, [b.rows for b in bins])
    axes.set(xlabel="entries of a row", ylabel="rows")
    axes.tick_params(axis="x", rotation=60)
    figure.savefig(path, dpi=150)
    return path


def _spy_png(csr: csr_array, path: Path) -> Path:
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    rows, columns = csr.shape
    if rows and columns and csr.nnz:
        counts = spy_counts(csr, *raster(rows, columns, _PIXELS, _PIXELS))
        shown = np.ma.masked_equal(counts, 0)
        most = max(int(counts.max()), 2)
        image = axes.imshow(
            shown, norm=LogNorm(1, most), cmap="viridis_r", extent=(0, columns, rows, 0), interpolation="nearest"
        )
        axes.set_aspect("equal" if 1 / 8 < rows / columns < 8 else "auto")
        figure.colorbar(image, label="entries in a cell", shrink=0.7)
    axes.set(xlabel="column", ylabel="row")
    axes.locator_params(nbins=5)
    figure.savefig(path, dpi=150)
    return path
