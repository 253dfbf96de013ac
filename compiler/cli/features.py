"""`sparseditto features`: the numbers that plans are chosen by, and what each of them means."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_json_argument, emit_json
from sparseditto.compiler.cli.compile import print_notes
from sparseditto.compiler.cli.inspect import VALUE_BYTES
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.agent.features import Features, Hardware, Operation, Product
    from sparseditto.compiler.matrix import Matrix


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "features",
        help="list features, or those of a matrix",
        description="List what features there are; with a matrix, their values.",
    )
    parser.add_argument("file", nargs="?", help="the matrix (.mtx, .tns, .npz, .npy), with ,shape=70x50 or ,mode=1 if needed")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--kernel", metavar="FILE", type=Path, help="with those of this kernel (.mlir) for the matrix")
    what.add_argument("--times", metavar="FILE", help="with those of the product with this sparse matrix")
    parser.add_argument("--entry", metavar="NAME", help="the function of the kernel, where there are several")
    parser.add_argument(
        "--size", metavar="NAME=N", action="append", default=[], help="size of a dimension of the kernel (K=64)"
    )
    parser.add_argument(
        "--hardware", metavar="FILE", type=Path, help="the GPU of a kernel or product, as JSON (default: that of an H200)"
    )
    parser.add_argument(
        "--dtype", choices=VALUE_BYTES, help="type of the values (default f32); a kernel says it itself", default=None
    )
    add_json_argument(parser)
    parser.set_defaults(func=command)


@dataclass(frozen=True)
class Found:
    """The features of a matrix, and of what is computed with it, where that is given."""

    features: Features
    value_bytes: int
    operation: Operation | None = None
    product: Product | None = None


def command(args: argparse.Namespace) -> int:
    from sparseditto.agent.features import definitions, describe, estimates

    if args.file is None:
        _refuse(args, "--kernel", "--times", "--hardware", "--dtype", without="a matrix")
        _list(args)
        return OK
    if args.kernel is None:
        _refuse(args, "--entry", "--size", without="--kernel")
    found = _of_kernel(args) if args.kernel is not None else _of_matrices(args)
    gpu = hardware_of(args) if found.operation is not None else None
    values = describe(found.features, found.value_bytes, found.operation, found.product, gpu)
    estimated = estimates(found.features, found.product)
    if args.json:
        told = {"file": args.file, "value_bytes": found.value_bytes, "hardware": gpu.to_json() if gpu else None}
        emit_json(told | {"estimates": sorted(estimated), "features": values})
        return OK
    print(f"file: {args.file}, values of {found.value_bytes} bytes{f', on {gpu.name}' if gpu else ''}")
    kind = None
    for d in definitions():
        if d.name not in values:
            continue
        if d.kind is not kind:
            kind = d.kind
            print(f"\n{kind.value}:")
        mark = "~" if d.name in estimated else " "
        print(f"  {d.name:18} {mark}{_spell(values[d.name]):>14}  {d.unit}")
    if estimated:
        print(f"\n~ estimated from samples: {values['sampled']:.2%} of the entries, in whole rows")
    return OK


def _refuse(args: argparse.Namespace, *options: str, without: str) -> None:
    """Raises `InputError` where one of these options is given, which mean nothing without something else."""
    for option in options:
        if getattr(args, option[2:]):
            raise InputError(f"{option} means nothing here: it needs {without}")


def _spell(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else str(value)


def _list(args: argparse.Namespace) -> None:
    from sparseditto.agent.features import definitions

    if args.json:
        emit_json([d.to_json() for d in definitions()])
        return
    width = max(len(d.name) for d in definitions())
    for d in definitions():
        print(f"{d.name:{width}}  {d.kind.value:14}  {d.unit:15}  {d.formula}")


def _load(text: str) -> Matrix:
    from sparseditto.compiler.matrix_io import Source, load
    from sparseditto.compiler.matrix_tensor import Tensor

    source = Source.parse(text)
    loaded = load(source.path, source.options)
    print_notes(loaded.notes)
    if isinstance(loaded, Tensor):
        raise InputError(f"a tensor has no such features; unfold it into a matrix with {source.path},mode=0")
    return loaded


def _of_matrices(args: argparse.Namespace) -> Found:
    """The matrix alone, or the product with another one."""
    from sparseditto.agent.features import analyse, multiply_patterns, sparse_operation

    value_bytes = VALUE_BYTES[args.dtype or "f32"]
    csr = _load(args.file).csr
    if args.times is None:
        _refuse(args, "--hardware", without="--kernel or --times")
        return Found(analyse(csr), value_bytes)
    other = _load(args.times).csr
    product = multiply_patterns(csr, other)
    features = analyse(csr)
    return Found(features, value_bytes, sparse_operation(features, analyse(other), product, value_bytes), product)


def _of_kernel(args: argparse.Namespace) -> Found:
    """The matrix as the kernel walks it, and one call of it."""
    from sparseditto.agent.features import dense_operation
    from sparseditto.compiler.driver import make_task
    from sparseditto.compiler.kernel import read_kernel_file
    from sparseditto.compiler.problem import bind, parse_sizes
    from sparseditto.dialects.binding import context

    _refuse(args, "--dtype", without="a matrix alone")
    with context():
        computation = read_kernel_file(args.kernel, args.entry).computation
    problem = bind(computation, {computation.sparse.name: args.file}, parse_sizes(args.size))
    print_notes(problem.notes)
    task, features = make_task(problem)
    assert features is not None  # a matrix is bound
    if task.columns is None:
        raise InputError("the number of dense columns is not known; add it with --size K=64", where=str(args.kernel))
    return Found(features, task.element_bytes, dense_operation(features, task.columns or 1, task.element_bytes))


def hardware_of(args: argparse.Namespace) -> Hardware:
    from sparseditto.agent.features import Hardware

    if args.hardware is None:
        return Hardware()
    try:
        return Hardware.from_json(json.loads(args.hardware.read_text()))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise InputError(f"is no description of a GPU: {e}", where=str(args.hardware)) from e
