"""`sparseditto arch`: what is known of GPUs, how two differ, and what can be measured of the one at hand."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_json_argument, emit_json, natural, note
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.agent.architecture.architecture import Architecture
    from sparseditto.agent.architecture.difference import Difference
    from sparseditto.agent.architecture.measured import Measurements
    from sparseditto.agent.architecture.quantity import Quantity

_COLUMNS = {
    "target": "gpu.target",
    "multiprocessors": "gpu->sm.count",
    "clock": "gpu.clock",
    "memory": "dram.capacity",
    "DRAM": "dram->l2.rate",
    "L2": "l2.capacity",
    "shared": "shared.capacity",
    "FP32": "fp32.peak",
    "FP64": "fp64.peak",
    "FP16 tensor": "tensor.peak_fp16",
}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "arch",
        help="describe GPUs",
        usage="sparseditto arch [list | NAME | here | diff A B | probe] [options]",
        description="List the known GPUs, describe one (`here`: the one at hand) or what differs between two, "
        "or measure the one at hand (`probe`).",
    )
    parser.add_argument("words", metavar="WORD", nargs="*", help="what to show (default: list)")
    shape = parser.add_mutually_exclusive_group()
    add_json_argument(shape)
    shape.add_argument("--graphml", action="store_true", help="print the graph as GraphML")
    shape.add_argument("--png", metavar="FILE", type=Path, help="draw the graph there (needs matplotlib)")
    parser.add_argument("--sources", action="store_true", help="say where each value comes from, and what others say")
    parser.add_argument("--measured", metavar="FILE", type=Path, help="put in what `arch probe` wrote there")
    parser.add_argument("--device", metavar="N", type=natural, default=0, help="which GPU `here` and `probe` mean")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="where `probe` writes (default: standard output)")
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    word, *rest = args.words or ["list"]
    _refuse_options(args, word)
    if word == "diff":
        if len(rest) != 2:
            raise InputError(f"`arch diff` needs two GPUs, not {len(rest)}; put names with spaces in quotes")
        _diff(args, *rest)
    elif word in ("list", "probe"):
        if rest:
            raise InputError(f"`arch {word}` takes nothing behind it, not '{' '.join(rest)}'")
        (_probe if word == "probe" else _list)(args)
    else:
        _show(args, " ".join(args.words))
    return OK


def _refuse_options(args: argparse.Namespace, word: str) -> None:
    """An option that would do nothing is refused."""
    shows = word not in ("list", "diff", "probe")
    idle = {
        "--graphml": args.graphml and not shows,
        "--png": args.png is not None and not shows,
        "--sources": args.sources and (not shows or args.json or args.graphml or args.png is not None),
        "--measured": args.measured is not None and not shows,
        "--device": args.device and not {"here", "probe"} & set(args.words),
        "--output": args.output is not None and word != "probe",
        "--json": args.json and word == "probe",
    }
    wrong = [option for option, unused in idle.items() if unused]
    if wrong:
        raise InputError(f"{wrong[0]} does nothing here (`sparseditto arch --help`)")


def _list(args: argparse.Namespace) -> None:
    from sparseditto.agent.architecture.building import named
    from sparseditto.agent.architecture.table import known

    found = [named(name) for name in known()]
    if args.json:
        emit_json([{"name": a.name} | {place: a.get(place).to_json() for place in _COLUMNS.values()} for a in found])
        return
    rows = [["GPU", *_COLUMNS], *([a.name, *(_short(a.get(place)) for place in _COLUMNS.values())] for a in found)]
    print("\n".join(_table(rows)))


def _show(args: argparse.Namespace, name: str) -> None:
    from sparseditto.agent.architecture.measured import with_measured

    architecture = _chosen(name, args.device)
    if args.measured is not None:
        architecture = with_measured(architecture, _read_measurements(args.measured))
    if args.json:
        emit_json(architecture.to_json())
    elif args.graphml:
        print(architecture.to_graphml(), end="")
    elif args.png is not None:
        from sparseditto.compiler.architecture_plot import write_png

        write_png(architecture, args.png)
        print(f"PNG: {args.png}")
    else:
        print("\n".join(describe(architecture, args.sources)))


def _chosen(name: str, device: int) -> Architecture:
    """A GPU by its name; `here` is the one at hand, and where its driver corrects the table is told."""
    from sparseditto.agent.architecture.building import named

    if name != "here":
        return named(name)
    from sparseditto.compiler.present import present

    architecture, corrections = present(device)
    for correction in corrections:
        note("sparseditto", f"{correction.place} is {correction.driver} by the driver, {correction.table} in the table")
    return architecture


def _diff(args: argparse.Namespace, first: str, second: str) -> None:
    from sparseditto.agent.architecture.difference import difference

    a, b = (_chosen(name, args.device) for name in (first, second))
    found = difference(a, b)
    if args.json:
        emit_json({"first": a.name, "second": b.name, "differences": [d.to_json() for d in found]})
    else:
        rows = [["", a.name, b.name, "ratio"], *map(_difference_row, found)]
        print("\n".join(_table(rows)))


def _difference_row(d: Difference) -> list[str]:
    values = [_without(d.first, d.second), _without(d.second, d.first)]
    return [d.place, *values, "" if d.ratio is None else f"{d.ratio:.2f}"]


def _without(quantity: Quantity | None, other: Quantity | None) -> str:
    """A value; of a list only what the other one lacks."""
    if quantity is None:
        return "-"
    if not isinstance(quantity.value, tuple) or other is None or not isinstance(other.value, tuple):
        return _short(quantity)
    common = set(quantity.value) & set(other.value)
    return _short(replace(quantity, value=tuple(v for v in quantity.value if v not in common)))


def _probe(args: argparse.Namespace) -> None:
    from sparseditto.compiler.probing import probe

    measurements = probe(args.device, lambda message: note("sparseditto", message))
    for place, quantity in measurements.values.items():
        note("sparseditto", f"{place} = {quantity}: {quantity.source}")
    if args.output is None:
        emit_json(measurements.to_json())
        return
    try:
        args.output.write_text(json.dumps(measurements.to_json(), indent=1) + "\n", encoding="utf-8")
    except OSError as e:
        raise InputError(f"cannot be written: {e.strerror}", where=str(args.output)) from e


def _read_measurements(path: Path) -> Measurements:
    from sparseditto.agent.architecture.measured import Measurements

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", where=str(path)) from e
    except ValueError as e:
        raise InputError(f"is not JSON: {e}", where=str(path)) from e
    try:
        return Measurements.from_json(data)
    except InputError as e:
        raise InputError(e.message, where=str(path)) from e


def describe(architecture: Architecture, sources: bool) -> list[str]:
    """Every node and edge with its values, for people; `?` stands for what is not known."""
    lines = [architecture.name]
    parts: dict[str, list[tuple[str, Quantity]]] = {}
    for place, quantity in architecture.values.items():
        where, _, name = place.rpartition(".")
        parts.setdefault(where, []).append((name, quantity))
    for where, found in parts.items():
        text = architecture.graph.nodes[where]["text"] if where in architecture.graph else ""
        lines += ["", f"{where}: {text}" if text else where]
        for name, quantity in found:
            lines += _described(name, quantity, sources)
    return lines


def _described(name: str, quantity: Quantity, sources: bool) -> list[str]:
    line = f"  {name.replace('_', ' ')}: {_short(quantity)}"
    if not sources:
        return [line if quantity.kind in ("vendor", "device", "none") else f"{line} ({quantity.kind})"]
    lines = [f"{line} ({quantity.kind}: {quantity.source.removeprefix('derived: ')})"]
    if quantity.note:
        lines.append(f"    {quantity.note}")
    for other in quantity.alternates:
        where = f" on {other.measured_on}" if other.measured_on else ""
        remark = f"; {other.note}" if other.note else ""
        lines.append(f"    also {other.value}{where}: {other.source}{remark}")
    return lines


def _short(quantity: Quantity) -> str:
    """A value for people: bytes from 1024 on in MiB and KiB."""
    if quantity.unit != "B" or quantity.number is None or quantity.number < 1024:
        return str(quantity)
    power, unit = (2, "MiB") if quantity.number >= 1 << 20 else (1, "KiB")
    return f"{quantity.number / 1024**power:g} {unit}"


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
