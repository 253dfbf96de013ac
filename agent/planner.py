"""The plan that is taken when nothing has been measured: a few rules on row lengths and the number of dense columns."""

from __future__ import annotations

from dataclasses import dataclass

from sparseditto.agent.features import Features
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Pass
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import find

THREADS = 256  # a block
RESIDENT = 1 << 18  # threads that a large GPU holds at a time: fewer leave it idle
SHORT_ROW = 24  # entries: the lanes of a shorter row need fewer each
STEP_US = 0.8  # one step of a lane's walk over its entries: a coordinate, then what it points to
UNROLL = 4  # entries a step
MOST_TILES = 9  # columns that a lane holds: so many sums, and the loads of UNROLL entries
ROW_UNITS = 12  # what a row costs each of its lanes, where one column of an entry costs 1
LAUNCH_US = 2.5
BYTES_PER_US = 3e6


@dataclass(frozen=True)
class Task:
    """What the planner must know of a computation.

    `rows_first` says that the sparse matrix's rows index the output (else its columns do); `choose_format` that the
    storage is free; `columns` is the number of dense columns (None: there are some, their number is not known; 0: none);
    `plain_rows` whether rows are stored as a dense level over a compressed one; `contiguous` whether the columns are the
    last index of every dense operand; `reduction` whether anything is summed; `element_bytes` the size of a value;
    `shape` the matrix's, where it is known.
    """

    rows_first: bool
    choose_format: bool
    columns: int | None
    element_bytes: int
    plain_rows: bool = True
    contiguous: bool = True
    reduction: bool = True
    kernel: str = ""
    shape: tuple[int | None, int | None] = (None, None)


def default_plan(task: Task, features: Features | None, target: Target) -> Plan:
    """A plan from structure alone.  `features` are those of the matrix as the kernel walks it (rows of the output)."""
    steps: list[Pass] = []
    if task.choose_format:
        steps.append(_encoding(task, features))
    steps.append(_make("accumulate-registers"))
    if not task.reduction:
        steps.append(_make("rows-to-threads"))
    elif task.columns in (0, 1):  # one column is no loop
        steps += _entries(task, features)
    else:
        steps += _columns(task, features, target)
    steps.append(_make("map-blocks", threads=THREADS))
    return Plan(tuple(steps), task.kernel)


def _make(name: str, **options: object) -> Pass:
    return find(name).make({key.replace("_", "-"): str(value) for key, value in options.items()})


def _encoding(task: Task, features: Features | None) -> Pass:
    """Rows first where the output has them, and 16-bit coordinates where they fit."""
    extent = task.shape[1 if task.rows_first else 0]
    narrow = extent is not None and extent <= 1 << 16
    wide = features is not None and features.entries > 2**31 - 1
    return _make(
        "set-encoding",
        format="csr" if task.rows_first else "csc",
        positions=64 if wide else 32,
        coordinates=16 if narrow else 64 if extent is not None and extent > 2**31 - 1 else 32,
    )


def _power_of_two(limit: float, least: int = 1, most: int = 32) -> int:
    """The largest power of two that is at most `limit`, from `least` to `most`."""
    n = least
    while n < most and 2 * n <= limit:
        n *= 2
    return n


def _held_up(task: Task, features: Features | None, lanes: int) -> bool:
    """Whether the longest row takes longer than everything else, when `lanes` lanes share its entries."""
    if features is None or not task.plain_rows:
        return False
    walk = STEP_US * features.max_row / (UNROLL * lanes)
    moved = features.entries * (4 + task.element_bytes * max(1, task.columns or 1))
    return walk > 1.5 * (LAUNCH_US + moved / BYTES_PER_US)


def _entries(task: Task, features: Features | None) -> list[Pass]:
    """SpMV: lanes share a row until all threads are busy, or each has few entries; long rows get blocks, or are cut.

    The numbers were chosen on an H200, for matrices that keep it busy.
    """
    steps: list[Pass] = []
    mean, rows = (features.mean_row, features.rows) if features is not None else (8.0, RESIDENT)
    lanes = max(_power_of_two(mean / (3.3 if mean < SHORT_ROW else 6.0)), _power_of_two(min(mean, RESIDENT / max(rows, 1))))
    if _held_up(task, features, lanes):
        if mean >= 32 and rows >= 1024:
            lanes = min(lanes, 8)
            steps.append(_make("segment-rows", length=128))
        else:
            steps.append(_make("bin-rows", limit=_power_of_two(32 * lanes, 32, 1024), length=2048, threads=THREADS))
    rows_to = _make("rows-to-threads") if lanes == 1 else _make("rows-to-subgroups", lanes=lanes, share="entries")
    return [*steps, rows_to, _make("unroll", factor=UNROLL)]


def _columns(task: Task, features: Features | None, target: Target) -> list[Pass]:
    """SpMM: lanes share the columns, each a vector of them; groups of lanes share the entries while threads are idle."""
    columns = task.columns
    if columns is None:
        return [_make("rows-to-subgroups", lanes=32, share="columns"), _make("unroll", factor=UNROLL)]
    mean, rows = (features.mean_row, features.rows) if features is not None else (8.0, RESIDENT)
    width = target.load_bytes // task.element_bytes if task.contiguous else 1
    while columns % width:
        width //= 2
    if columns // width < 4 and width > 2 and rows * columns // width >= RESIDENT:
        width //= 2  # few columns, many rows: more lanes a row read neighbouring entries together
    jam, lanes = _tiles(columns // width, mean, target)
    groups = _power_of_two(min(mean / UNROLL, RESIDENT / max(rows * lanes, 1), target.warp_size / lanes))
    steps: list[Pass] = []
    if _held_up(task, features, groups):
        entries = features.entries if features is not None else 0
        length = _power_of_two(entries * lanes * groups / RESIDENT, 32, 64 if columns <= 32 else 128)
        steps.append(_make("segment-rows", length=length))
    if width > 1:
        steps.append(_make("vectorize", width=width))
    if jam > 1:
        steps.append(_make("jam-columns", factor=jam))
    share = _make("rows-to-subgroups", lanes=lanes * groups, groups=groups, share="columns")
    return [*steps, share, _make("unroll", factor=UNROLL)]


def _tiles(vectors: int, mean: float, target: Target) -> tuple[int, int]:
    """Tiles of columns that are computed together, and lanes that share a tile, for so many vectors of columns.

    Where lanes fill a tile exactly: one tile, two from 16 vectors on.  Otherwise what is cheapest: an entry costs each lane
    two units, its part of what a row costs, and one unit a tile; a load that all lanes do together costs the L1 cache eight.
    """
    if vectors & (vectors - 1) == 0:
        jam = 2 if vectors >= 16 else 1
        return jam, _power_of_two(vectors / jam, most=target.warp_size)
    choices: list[tuple[float, int, int]] = []
    for jam in range(1, MOST_TILES + 1):
        tile = -(-vectors // jam)
        lanes = _power_of_two(2 * tile - 1, most=target.warp_size)
        cost = -(-tile // lanes) * (lanes * (2 + ROW_UNITS / max(mean, 1.0) + jam) + 8 * jam)
        if tile * (jam - 1) < vectors:  # else a tile is empty
            choices.append((cost, jam, lanes))
    _, jam, lanes = min(choices)
    return jam, lanes
