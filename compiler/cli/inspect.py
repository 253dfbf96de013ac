"""`sparseditto inspect`: what a matrix looks like, and what each format would make of it."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_json_argument, emit_json
from sparseditto.compiler.cli.compile import print_notes
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.compiler.inspect_pattern import Inspection, TensorInspection, Values
    from sparseditto.compiler.matrix import Matrix

VALUE_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        help="describe a matrix",
        description="Describe the structure of a matrix or tensor, with its size in each storage format.",
    )
    parser.add_argument("file", help="the matrix (.mtx, .tns, .npz, .npy), with ,shape=70x50 or ,mode=1 where it needs that")
    parser.add_argument(
        "--dtype", choices=VALUE_BYTES, default="f32", help="type of the values in a format (default %(default)s)"
    )
    parser.add_argument("--png", metavar="DIR", type=Path, help="write the plots there as PNG (needs matplotlib)")
    add_json_argument(parser)
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    from sparseditto.compiler.inspect_pattern import inspect_matrix, inspect_tensor
    from sparseditto.compiler.matrix_io import Source, load
    from sparseditto.compiler.matrix_tensor import Tensor

    source = Source.parse(args.file)
    loaded = load(source.path, source.options)
    value_bytes = VALUE_BYTES[args.dtype]
    print_notes(loaded.notes)
    if isinstance(loaded, Tensor):
        if args.png is not None:
            raise InputError(f"a tensor has no plot; unfold it into a matrix with {source.path},mode=0")
        tensor = inspect_tensor(loaded, value_bytes)
        _emit(args, tensor.to_json(), describe_tensor(tensor, args.dtype))
        return OK
    found = inspect_matrix(loaded, value_bytes)
    pictures = _write_png(args.png, loaded, found, source.path.name.split(".")[0]) if args.png is not None else []
    lines = [] if args.json else [*describe_matrix(found, args.dtype), *plots(loaded, found)]
    _emit(args, found.to_json() | {"png": pictures}, [*lines, *(f"PNG: {path}" for path in pictures)])
    return OK


def _emit(args: argparse.Namespace, data: dict[str, Any], lines: list[str]) -> None:
    if args.json:
        emit_json({"file": args.file} | data)
    else:
        print("\n".join([f"file: {args.file}", *lines]))


def _write_png(folder: Path, matrix: Matrix, found: Inspection, name: str) -> list[str]:
    from sparseditto.compiler.inspect_plots import write_png

    return [str(path) for path in write_png(matrix.csr, found.histogram, folder, name)]


def describe_matrix(found: Inspection, dtype: str) -> list[str]:
    """Numbers and the table of formats, for people."""
    f, s = found.features, found.symmetry
    all_diagonals = max(f.rows + f.columns - 1, 0)
    symmetry = (
        f"symmetry: pattern {s.pattern:.2%}, values {s.values:.2%}, skew {s.skew:.2%} of what is off the diagonal"
        if s
        else None
    )
    lines = [
        f"matrix: {f.rows} x {f.columns}, {f.entries} entries, density {found.density:.3g}",
        f"rows: {f.mean_row:.2f} entries on average, at most {f.max_row}, variation {f.variation:.2f}, "
        f"{f.empty_rows:.2%} empty",
        f"columns: at most {found.max_column} entries, {found.empty_columns:.2%} empty",
        *([symmetry] if symmetry else []),
        f"band: {found.below} below and {found.above} above the diagonal, which has {found.diagonal_entries} entries; "
        f"{found.diagonals} of {all_diagonals} diagonals occupied",
        _values_line(found.values),
        f"slices of 32 rows: {f.padding:.2f} places an entry, {f.padding_sorted:.2f} with rows sorted",
        "",
        f"{'format':15} {'bytes':>15} {'an entry':>9} {'fill':>9}   with {dtype} values",
    ]
    for size in found.formats:
        data = size.to_json(f.entries)
        each = "" if data["bytes_per_entry"] is None else f"{data['bytes_per_entry']:.2f}"
        fill = "" if data["fill"] is None else f"{data['fill']:.2f}"
        wide = "   64-bit indices" if 64 in (size.positions, size.coordinates) else ""
        cells = f"{'-' if size.bytes is None else size.bytes:>15} {each:>9} {fill if size.bytes is not None else '':>9}"
        lines.append(f"{size.name:15} {cells}{wide}{'   ' + size.why if size.why else ''}".rstrip())
    return lines


def _values_line(values: Values) -> str:
    span = "none is finite" if values.minimum is None else f"{values.minimum:g} to {values.maximum:g}"
    return f"values: {values.dtype}, {span}; {values.nans} NaN, {values.infinities} infinite, {values.zeros} stored zeros"


def describe_tensor(found: TensorInspection, dtype: str) -> list[str]:
    lines = [f"tensor: {' x '.join(map(str, found.shape))}, {found.entries} entries, density {found.density:.3g}"]
    for number, mode in enumerate(found.modes):
        lines.append(f"dimension {number}: {mode.filled} of {mode.size} slices have entries, at most {mode.most}")
    lines.append(_values_line(found.values))
    for name, size in found.bytes.items():
        each = f", {size / found.entries:.2f} an entry" if found.entries else ""
        lines.append(f"{name}: {size} bytes{each}, with {dtype} values")
    return lines


def plots(matrix: Matrix, found: Inspection) -> list[str]:
    """The two plots in characters, as wide as the terminal (or COLUMNS, or 80)."""
    from sparseditto.compiler.inspect_plots import histogram_text, spy_text

    width = shutil.get_terminal_size().columns
    lines = ["", "rows by their number of entries:", *histogram_text(found.histogram, min(width, 100))]
    spy = spy_text(matrix.csr, width, _shows_unicode())
    return [*lines, "", "entries:", *spy] if spy else lines


def _shows_unicode() -> bool:
    try:
        "⣿█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
