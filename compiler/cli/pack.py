"""`sparseditto pack`: a matrix as the arrays of one storage format, in a file."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_json_argument, emit_json
from sparseditto.compiler.cli.compile import print_notes
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.compiler.packed_io import PackedFile

_FORMATS = ("csr", "csc", "dcsr", "dcsc", "bsr", "coo", "csf")  # of packed_io, which takes long to import
DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_WIDTHS = (8, 16, 32, 64)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "pack",
        help="store a matrix in one format",
        description="Store a matrix or tensor in the arrays of one format; --bind takes the file wherever it takes a matrix.",
    )
    parser.add_argument("--bind", metavar="OPERAND=FILE", required=True, help="what to pack (.mtx, .tns, .npz, .npy)")
    parser.add_argument("--format", choices=_FORMATS, default="csr", help="the storage format (default %(default)s)")
    parser.add_argument("-o", "--output", metavar="FILE.npz", type=Path, help="the file to write (default: OPERAND.npz here)")
    parser.add_argument("--coordinates", type=int, choices=_WIDTHS, default=32, help="bits of a coordinate (default 32)")
    parser.add_argument("--positions", type=int, choices=_WIDTHS, default=32, help="bits of a position (default 32)")
    parser.add_argument("--block", metavar="RxC", type=_block, default=(4, 4), help="rows and columns of a block (default 4x4)")
    parser.add_argument("--dtype", choices=DTYPES, help="type of the values (default: f32 or f64, as they are read)")
    add_json_argument(parser)
    parser.set_defaults(func=command)


def _block(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no block; write ROWSxCOLUMNS, as in 4x4")
    return int(found[1]), int(found[2])


def command(args: argparse.Namespace) -> int:
    from sparseditto.compiler.matrix import Matrix
    from sparseditto.compiler.matrix_io import Source, load
    from sparseditto.compiler.packed_io import pack_source, packed_format, save_packed
    from sparseditto.compiler.problem import parse_bindings

    ((name, text),) = parse_bindings([args.bind]).items()
    output: Path = args.output or Path(re.sub(r"[^\w.-]|^\.+", "_", name) + ".npz")
    if output.suffix != ".npz":
        raise InputError("a packed file has the suffix .npz, by which it is read", where=str(output))
    source = Source.parse(text)
    loaded = load(source.path, source.options)
    values, rank = (loaded.csr.data, 2) if isinstance(loaded, Matrix) else (loaded.values, loaded.rank)
    encoding = packed_format(args.format, rank, args.positions, args.coordinates, args.block)
    file = pack_source(loaded, encoding, DTYPES[args.dtype] if args.dtype else values.dtype.name)
    head = save_packed(output, file)
    print_notes(tuple(f"{name}: {text}" for text in file.notes))
    arrays = file.packed.arrays
    if args.json:
        sizes = {key: {"dtype": array.dtype.name, "length": array.size, "bytes": array.nbytes} for key, array in arrays.items()}
        emit_json({"output": str(output), "entries": int(values.size), "arrays": sizes, **head})
    else:
        print(describe(file, int(values.size)))
        print(f"packed: {output}")
    return OK


def describe(file: PackedFile, entries: int) -> str:
    """Encoding and arrays, for people."""
    packed = file.packed
    lines = [f"encoding: {packed.encoding.text()}", f"shape: {' x '.join(map(str, packed.shape))}, {entries} entries"]
    for name, array in packed.arrays.items():
        lines.append(f"  {name:14} {array.dtype.name:9} {array.size:12} elements {array.nbytes:14} bytes")
    total = sum(array.nbytes for array in packed.arrays.values())
    each = f", {total / entries:.2f} for each entry" if entries else ""
    lines.append(f"bytes: {total}{each}")
    return "\n".join(lines)
