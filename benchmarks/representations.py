"""Every way to store a matrix that the passes offer, with a plan for SpMV and one for SpMM each, and the kernels for them.

Some matrices cannot be stored in some ways: there packing refuses with words that the table knows, and any other refusal is a
fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparseditto.dialects.encoding import Encoding, Level

LANES = "rows-to-subgroups{lanes=8},unroll,map-blocks"  # they share the entries of a row
THREADS = "rows-to-threads,unroll,map-blocks"
COLUMNS = "rows-to-subgroups{lanes=16},unroll,map-blocks"  # they share the dense columns

# How packing words its refusals, as regular expressions.
WIDE = "does not fit in 16 bits"
IDLE = "values for .* entries; choose compressed"
PADDED = "places for .* entries"
MARKED = "store coordinates with more bits"
SPREAD = "the columns of a row span"
UNEQUAL = "the values are not all equal"
UNSYMMETRIC = "is not symmetric"


def _block_levels(first: int, outer: str, inner: str) -> Encoding:
    """Blocks of 2 rows and 3 columns: which dimension comes first, and the types of the two levels of block numbers."""
    size, second = {0: 2, 1: 3}, 1 - first
    numbers = Level(first, outer, "floordiv", size[first]), Level(second, inner, "floordiv", size[second])
    return Encoding((*numbers, Level(first, "dense", "mod", size[first]), Level(second, "dense", "mod", size[second])))


# What the passes give no name to.  COO is packed but not compiled: its walk is no nest of counted loops.
PINNED = {
    "loose-csr": Encoding((Level(0), Level(1, "loose_compressed"))),
    "loose-dcsr": Encoding((Level(0, "loose_compressed"), Level(1, "loose_compressed"))),
    "loose-bsr-2x3": _block_levels(0, "dense", "loose_compressed"),
    "dbsr-2x3": _block_levels(0, "compressed", "compressed"),
    "bsc-2x3": _block_levels(1, "dense", "compressed"),
}


@dataclass(frozen=True)
class Representation:
    """Plans as text; an operation that passes have no schedule for has none.

    `pinned` is the encoding in the kernel's types where `set-encoding` has no name for it.  With `transposed` the products are
    A^T x and A^T B, for formats that walk columns.  `refusals` are how packing may refuse a matrix, as regular expressions.
    """

    plans: dict[str, str]
    pinned: Encoding | None = None
    transposed: bool = False
    refusals: tuple[str, ...] = ()


def _plans(text: Callable[[str], str], spmv: str = LANES, spmm: str | None = COLUMNS) -> dict[str, str]:
    """By operation: `text` of what maps its rows."""
    return {op: text(mapping) for op, mapping in (("spmv", spmv), ("spmm", spmm)) if mapping is not None}


def _encoded(options: str, *refusals: str, steps: str = "", transposed: bool = False) -> Representation:
    """What `set-encoding` stores, with `steps` after it (each ends with a comma)."""
    plans = _plans(lambda mapping: f"set-encoding{{{options}}},accumulate-registers,{steps}{mapping}")
    return Representation(plans, transposed=transposed, refusals=refusals)


def _pinned(encoding: Encoding) -> Representation:
    by_columns, blocked = encoding.levels[0].dim == 1, len(encoding.levels) > encoding.rank
    plans = _plans(lambda mapping: f"accumulate-registers,{mapping}")
    return Representation(plans, encoding, by_columns, (IDLE,) if blocked else ())


def _blocks(rows: int, columns: int, steps: str = "", *refusals: str) -> Representation:
    return _encoded(f"format=bsr block-rows={rows} block-columns={columns}", IDLE, *refusals, steps=steps)


def _laid_out(step: str, *refusals: str, spmv: str = LANES, spmm: str | None = COLUMNS) -> Representation:
    """What passes make of CSR."""
    plans = _plans(lambda mapping: f"set-encoding,accumulate-registers,{step},{mapping}", spmv, spmm)
    return Representation(plans, refusals=refusals)


def _parts(by: str, *parts: str) -> Representation:
    """A hybrid: what each part is stored in ("" for CSR), each mapped as the rest is."""

    def text(mapping: str) -> str:
        return f"set-encoding,accumulate-registers,{by}," + ",next-part,".join(f"{part}{mapping}" for part in parts)

    return Representation(_plans(text, THREADS))


REPRESENTATIONS: dict[str, Representation] = {
    # --- Level types
    "csr": _encoded("format=csr"),
    "csr-coordinates16": _encoded("format=csr coordinates=16", WIDE),
    "csr-16": _encoded("format=csr positions=16 coordinates=16", WIDE),
    "csr-64": _encoded("format=csr positions=64 coordinates=64"),
    "csc": _encoded("format=csc", transposed=True),
    "dcsr": _encoded("format=dcsr"),
    "dcsc": _encoded("format=dcsc", transposed=True),
    **{name: _pinned(encoding) for name, encoding in PINNED.items()},
    **{f"bsr-{h}x{w}": _blocks(h, w) for h, w in ((2, 2), (3, 3), (4, 4), (6, 6), (8, 8), (16, 16), (3, 2), (2, 8), (16, 4))},
    "bsr-4x4-jammed": _blocks(4, 4, "jam-block-rows,"),
    # --- Blocks that store their entries only
    **{f"bits-{h}x{w}": _blocks(h, w, "pack-blocks,") for h, w in ((2, 2), (4, 4), (8, 4), (2, 16), (3, 2))},
    # --- Rows side by side, and diagonals
    "ell": _laid_out("ell-rows{factor=16}", PADDED, spmv=THREADS),
    "ell-16": _laid_out("ell-rows{offsets=16 factor=16}", PADDED, MARKED, spmv=THREADS),
    "sell": _laid_out("slice-rows", spmv=THREADS),
    "sell-16": _laid_out("slice-rows{offsets=16}", MARKED, spmv=THREADS),
    "sell-2": _laid_out("slice-rows{height=2}", spmv=THREADS),
    "sell-128-sorted": _laid_out("slice-rows{height=128 window=1073741824}", spmv=THREADS),
    "sell-sorted": _laid_out("slice-rows{window=1024}", spmv=THREADS),
    "sell-sorted-16": _laid_out("slice-rows{height=16 window=128 offsets=16}", MARKED, spmv=THREADS),
    "dia": _laid_out("diagonals{factor=16}", PADDED, spmv=THREADS),
    # --- Fewer bytes an entry
    "narrow-8": _laid_out("narrow-coordinates{bits=8}", SPREAD),
    "narrow-16": _laid_out("narrow-coordinates{bits=16}", SPREAD),
    "narrow-8-bsr-2x2": _blocks(2, 2, "narrow-coordinates{bits=8},", SPREAD),
    "uniform": _laid_out("uniform-values", UNEQUAL),
    "uniform-narrow-16": _laid_out("uniform-values,narrow-coordinates", UNEQUAL, SPREAD),
    "uniform-dcsr": _encoded("format=dcsr", UNEQUAL, steps="uniform-values,"),
    "uniform-sell": _laid_out("uniform-values,slice-rows", UNEQUAL, spmv=THREADS),
    "triangle": _laid_out("lower-triangle", UNSYMMETRIC),
    "triangle-narrow-16": _laid_out("lower-triangle,narrow-coordinates", UNSYMMETRIC, SPREAD),
    "triangle-uniform": _laid_out("lower-triangle,uniform-values", UNSYMMETRIC, UNEQUAL),
    # --- Rows as lists, in pieces, and entries without rows
    "listed": _laid_out("nonempty-rows", spmm=None),
    "segments": _laid_out("segment-rows{length=64}"),
    "bins": _laid_out("bin-rows", spmm=None),
    "split-atomic": _laid_out("split-entries{mode=atomic}", spmv="map-blocks", spmm="map-blocks"),
    "split-deterministic": _laid_out("split-entries{mode=deterministic}", spmv="map-blocks", spmm="map-blocks"),
    "staged-products": _laid_out("stage-entries{stage=products}", spmv="unroll", spmm=None),
    "staged-entries": _laid_out("stage-entries{stage=entries}", spmv="unroll", spmm=None),
    # --- Other orders
    "rows-by-degree": _laid_out("reorder{rows=degree}"),
    "rows-by-rcm": _laid_out("reorder{rows=rcm}"),
    "rows-by-cluster": _laid_out("reorder{rows=cluster}"),
    "columns-by-degree": _laid_out("reorder{rows=none columns=degree}"),
    "both-by-rcm": _laid_out("reorder{rows=rcm columns=same}"),
    "both-by-degree-sell": _laid_out("reorder{rows=degree columns=degree},slice-rows", spmv=THREADS),
    # --- Hybrids
    "sell-and-csr": _parts("partition{by=length limit=32}", "slice-rows,", ""),
    "ell-and-segments": _parts("partition{by=length limit=4}", "ell-rows{factor=1048576},", "segment-rows,"),
    "hot-and-cold": _parts("reorder{rows=none columns=degree},partition{by=column limit=1000}", "", ""),
    "dia-and-csr": _parts("partition{by=diagonal limit=75}", "diagonals{factor=1048576},", ""),
    "three-parts": _parts("partition{by=length limit=64},partition{by=length limit=8}", "slice-rows{height=16},", "", ""),
}


# --- Kernels --------------------------------------------------------------------------------------------


def kernel_text(op: str, dtype: str, transposed: bool = False, pinned: Encoding | None = None) -> str:
    """The kernel of `op` ("spmv", "spmm") for values of `dtype` ("float32", "float64"): y = A x or C = A B, or with A^T.

    The output starts from 0 and is not read.  `pinned` is the encoding of A; without one the plan chooses it.
    """
    e = {"float32": "f32", "float64": "f64"}[dtype]
    stored = f", {pinned.text()}" if pinned is not None else ""
    a, mark = f"tensor<?x?x{e}{stored}>", "" if stored else " {ditto.sparse}"
    wide = op == "spmm"
    dense, columns, j = (f"tensor<?x?x{e}>", ", %n", ", j") if wide else (f"tensor<?x{e}>", "", "")
    count = f"  %n = tensor.dim %B, %c1 : {dense}\n" if wide else ""
    loops = '"parallel", "parallel", "reduction"' if wide else '"parallel", "reduction"'
    place = "k, i" if transposed else "i, k"
    maps = ", ".join(f"affine_map<(i{j}, k) -> ({indices})>" for indices in (place, f"k{j}", f"i{j}"))
    return f"""func.func @{op}(%A: {a}{mark}, %B: {dense}) -> {dense} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : {e}
  %m = tensor.dim %A, %c{int(transposed)} : {a}
{count}  %empty = tensor.empty(%m{columns}) : {dense}
  %init = linalg.fill ins(%zero : {e}) outs(%empty : {dense}) -> {dense}
  %C = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{loops}]}}
    ins(%A, %B : {a}, {dense}) outs(%init : {dense}) {{
  ^bb0(%a: {e}, %b: {e}, %sum: {e}):
    %product = arith.mulf %a, %b : {e}
    %next = arith.addf %sum, %product : {e}
    linalg.yield %next : {e}
  }} -> {dense}
  return %C : {dense}
}}
"""
