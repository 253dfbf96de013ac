"""Plans from structure alone, the most promising first: rules on row lengths and the number of dense columns.

The numbers were chosen on an H200; those that the size of a GPU sets are in `Machine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.choosing import place_of
from sparseditto.agent.features import WINDOW, Features
from sparseditto.agent.machine import Machine
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Form, Kind, Pass
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import find

THREADS = 256  # a block
NARROW = 128  # a block of threads that have many registers or little to do
SHORT_ROW = 24  # entries: the lanes of a shorter row need fewer each
STEP_US = 0.5  # one step of a lane's walk over its entries: a coordinate, then what it points to
UNROLL = 4  # entries a step
LAUNCH_US = 2.5
EMPTY = 0.5  # share of rows without entries, from which a list of the others is worth its reading
PADDING = 1.5  # places over entries, up to which slices are worth their padding
MOST_PADDING = 4.0  # the same, that `ell-rows` and `diagonals` pack by default
EQUAL_PADDING = 1.1  # the same, up to which rows of one width beat slices
DIAGONAL_PADDING = 1.4  # the same, up to which diagonals beat coordinates of 16 bits
BLOCK_SKEW = 8  # longest row over the mean, up to which rows are stored in blocks
BLOCK_BEST, BLOCK_MOST = 1.0, 1.2  # of a cost (see `_SpMM._blocked`): certain to beat rows without blocks; worth a try
CROWDED = 0.01  # share of the entries in one row, from which atomics of its pieces are slow
SCATTERED = 16  # entries a row, below which parts of the entries beat segments of rows
HOT = (
    0.25  # share of the entries in the columns with most of them (feature `hot_columns`), from which rows have those in common
)
COLD = 0.05  # the same, below which no columns are hot
REREAD = 8  # entries a row, from which slabs of columns are worth reading the entries again
UNEVEN = 0.8  # standard deviation of row lengths over their mean, from which rows that share a warp should be alike
WARP_MATES = 16  # dense columns, up to which several rows share a warp
APART = 0.15  # share of its columns that a row has in common with the next one, above which rows are in a good order already
HUBS_FROM, HUBS_TO = 17, 128  # dense columns, for which such rows by falling length beat parts of the entries
SPREAD = 64  # columns of the matrix for each entry of a mean row, up to which neighbouring rows share many
SCATTERED_COLUMNS = 1 << 19  # columns, from which SpMV gains by copying what it gathers so that hot elements are neighbours
ORDERED_COLUMNS = 64  # dense columns, below which rows in order are worth it only with many entries (`Machine.many`)
PANEL_ROWS = 16_384  # columns of the matrix, up to which rows that walk side by side do better with a tile of dense columns
STEP = 8  # entries of which one thread has all loads in flight together
MOST_PLACES = 2**31 - 1
MARKED = (1 << 8, 1 << 16)  # columns, for which coordinates of 8 or 16 bits leave none that could mark padding
MOST_TILES = 9  # columns that a lane holds: so many sums, and the loads of UNROLL entries
ROW_UNITS = 12  # what a row costs each of its lanes, where one column of an entry costs 1
TILE_REUSE = 32  # entries of a column of the matrix, from which such a tile is worth reading the entries again
REGISTERS = 64  # of a thread with unrolled loads: the least that hold them
_NONE = float("inf")  # padding that no layout is worth
_UNKNOWN = Features(
    1 << 18,
    1 << 18,
    1 << 21,
    8.0,
    8,
    0.0,
    0.0,
    padding=_NONE,
    padding_sorted=_NONE,
    ell_padding=_NONE,
    diagonal_padding=_NONE,
)


@dataclass(frozen=True)
class Task:
    """What the planner must know of a computation.

    `rows_first` says that the sparse matrix's rows index the output (else its columns do); `choose_format` that the
    storage is free; `columns` is the number of dense columns (None: there are some, their number is not known; 0: none);
    `plain_rows` whether rows are stored as a dense level over a compressed one; `contiguous` whether the columns are the
    last index of every dense operand; `reduction` whether anything is summed; `one_sum` whether that is one sum over the
    stored entries of a row, `row_terms` whether what an entry adds depends on its row by more than the entry itself, and
    `gathers` whether on its column; `element_bytes` the size of a value; `shape` the matrix's, where it is known.
    """

    rows_first: bool
    choose_format: bool
    columns: int | None
    element_bytes: int
    plain_rows: bool = True
    contiguous: bool = True
    reduction: bool = True
    one_sum: bool = True
    row_terms: bool = False
    gathers: bool = True
    kernel: str = ""
    shape: tuple[int | None, int | None] = (None, None)


def default_plan(task: Task, features: Features | None, target: Target, gpu: Architecture | None = None) -> Plan:
    """The first of `ranked`."""
    return next(_plans(task, features, target, gpu))


def ranked(task: Task, features: Features | None, target: Target, gpu: Architecture | None = None) -> list[Plan]:
    """Plans for a task, the most promising first.

    `features` are those of the matrix as the kernel walks it; `gpu` is the one that the plan is for (None: the one that the
    chip means, `place_of`).  Raises `Unsupported` where the graph of `gpu` lacks a number that the rules read (`Machine`).
    """
    return list(dict.fromkeys(_plans(task, features, target, gpu)))


def _plans(task: Task, features: Features | None, target: Target, gpu: Architecture | None) -> Iterator[Plan]:
    for steps in _schedules(task, features, target, Machine.of(gpu or place_of(target.chip)[1])):
        by_kind = {kind: [step for step in steps if step.kind is kind] for kind in Kind}
        stored = by_kind[Kind.REPRESENTATION]
        if not task.choose_format and stored:
            continue
        marked = any(Form.SLICES in step.provides for step in steps)
        first = stored if stored or not task.choose_format else [_encoding(task, features, marked)]
        mapped = any(Form.BLOCKS in step.provides for step in steps)
        blocks = [] if mapped else [_make("map-blocks", threads=THREADS)]
        schedule = [_make("accumulate-registers"), *by_kind[Kind.SCHEDULE]]
        yield Plan((*first, *schedule, *blocks, *by_kind[Kind.MAPPING]), task.kernel)


def _schedules(task: Task, features: Features | None, target: Target, machine: Machine) -> Iterator[list[Pass]]:
    if not task.reduction:
        yield [_make("rows-to-threads")]
    elif task.columns in (0, 1):  # one column is no loop
        yield from _SpMV(task, features or _UNKNOWN, machine).schedules()
    elif task.columns is None:
        yield [_make("rows-to-subgroups", lanes=32, share="columns"), _make("unroll", factor=UNROLL)]
    else:
        yield from _SpMM(task, features or _UNKNOWN, target, machine, task.columns).schedules()


def _make(name: str, **options: object) -> Pass:
    return find(name).make({key.replace("_", "-"): str(value) for key, value in options.items()})


def _encoding(task: Task, features: Features | None, marked: bool) -> Pass:
    """Rows first where the output has them, and 16-bit coordinates where they fit, beside a mark where there is one."""
    wide = features is not None and features.entries > 2**31 - 1
    return _make(
        "set-encoding",
        format="csr" if task.rows_first else "csc",
        positions=64 if wide else 32,
        coordinates=_coordinate_bits(task, marked),
    )


def _coordinate_bits(task: Task, marked: bool = False) -> int:
    """Of a stored coordinate: as few as its extent needs."""
    extent = task.shape[1 if task.rows_first else 0]
    if extent is None:
        return 32
    return 16 if extent + marked <= 1 << 16 else 32 if extent <= 2**31 - 1 else 64


class _SpMV:
    """Slices where rows resemble each other; blocks of entries where few rows are far longer; else lanes that share a row."""

    def __init__(self, task: Task, f: Features, machine: Machine) -> None:
        self.task, self.f, self.m = task, f, machine
        mean = f.mean_row
        short = _power_of_two(mean / (3.3 if mean < SHORT_ROW else 6.0))
        self.lanes = max(short, _power_of_two(min(mean, self.m.resident / max(f.rows, 1))))
        self.cuttable = task.plain_rows and task.one_sum
        self.stageable = self.cuttable and not task.row_terms and f is not _UNKNOWN
        self.sliceable = self.cuttable and _fits_slices(task, f)
        self.storable = self.cuttable and f is not _UNKNOWN
        self.markable = self.storable and _fits_marks(task, f, f.ell_padding)

    def schedules(self) -> Iterator[list[Pass]]:
        f = self.f
        held_up = self.cuttable and _held_up(self.task, f, self.lanes, self.m)
        skewed = f.variation > 1.5 and 4 <= f.mean_row <= 64
        hubs = skewed and f.entries > self.m.hubs and not _crowded(f)  # many long rows, each with short ones around
        if self.storable:
            yield from self._smaller(held_up)
        enough = f.rows >= max(self.m.sliced_rows, self.m.sliced_ratio * f.mean_row)
        if self.sliceable and enough and f.mean_row >= 4 and not held_up:
            yield from self._sliced()
        uneven = f.variation > 1 and f.entries > self.m.large
        if held_up and hubs:
            yield self._split("atomic", 256)
            if self.f.columns > SCATTERED_COLUMNS:
                yield [_make("reorder", rows="none", columns="degree"), *self._split("atomic", 256)]
            yield self._binned()
        if (held_up or uneven) and self.stageable:
            yield from self._staged()
        if held_up:
            yield self._binned()
            yield self._split("atomic", 256 if f.entries > self.m.large else 128)
            yield self._split("deterministic", 512)
        yield self._shared(self.lanes)
        if not held_up and self.stageable:
            yield from self._staged()
        yield [*self._shared(self.lanes), _bound(self.m, THREADS)]
        yield self._shared(self.lanes, "vectorize-entries")
        yield self._shared(_power_of_two(2 * self.lanes))
        yield self._shared(_power_of_two(self.lanes / 2))
        if self.sliceable:
            yield from self._sliced()
        if self.storable:
            yield from self._stored()

    def _smaller(self, held_up: bool) -> Iterator[list[Pass]]:
        """What moves clearly fewer bytes than slices do, or takes fewer steps one after another."""
        f = self.f
        if f.entries and f.empty_rows >= EMPTY and not _held_up(self.task, f, self._filled_lanes(), self.m):
            yield self._nonempty()
        few, size = f.rows < self.m.sliced_rows, self.task.element_bytes
        kinds = [] if held_up else self._blocked()
        if _fits_diagonals(self.task, f) and (f.diagonals <= STEP if few else f.diagonal_padding <= DIAGONAL_PADDING):
            kinds.append((0.0 if few else size * f.diagonal_padding, self._diagonals()))
        yield from (steps for _, steps in sorted(kinds, key=lambda kind: kind[0]))
        if self.markable and (f.max_row <= STEP and f.ell_padding <= MOST_PADDING if few else f.ell_padding <= EQUAL_PADDING):
            yield self._equal()

    def _stored(self) -> Iterator[list[Pass]]:
        """Entries stored in fewer bytes than CSR has, or without the rows that have none."""
        f = self.f
        if _fits_diagonals(self.task, f):
            yield self._diagonals()
        if f.equal_values:
            tail = [_make("rows-to-threads"), _make("unroll", factor=8, tail="halves")]
            yield [_make("uniform-values"), *([_slices(f, 32), *tail] if self.sliceable else self._shared(self.lanes))]
        if self.markable and f.ell_padding <= PADDING:
            yield self._equal()
        if (bits := _narrow(self.task, f)) is not None:
            yield [_make("narrow-coordinates", bits=bits), *self._shared(self.lanes)]
        if f.empty_rows >= EMPTY:
            yield self._nonempty()
        if f.entries and f.rows == f.columns and f.value_symmetry == 1:
            yield [_make("lower-triangle"), *self._shared(self.lanes)]

    def _diagonals(self) -> list[Pass]:
        return [_make("diagonals"), *self._side_by_side(self.f.diagonals)]

    def _equal(self) -> list[Pass]:
        return [_make("ell-rows", offsets=_offset_bits(self.f.span)), *self._side_by_side(self.f.max_row)]

    def _side_by_side(self, width: int) -> list[Pass]:
        """A thread a row of so many places; where rows are few, all loads of one are in flight together."""
        few = self.f.rows < self.m.sliced_rows
        unroll = _make("unroll", factor=_power_of_two(2 * width - 1, UNROLL, STEP), tail="clamp" if few else "halves")
        steps = [_make("rows-to-threads"), unroll]
        steps.append(_make("map-blocks", threads=NARROW))
        return [*steps, _bound(self.m, NARROW)] if few else steps

    def _nonempty(self) -> list[Pass]:
        return [_make("nonempty-rows"), *self._shared(self._filled_lanes()), _make("map-blocks", threads=NARROW)]

    def _filled_lanes(self) -> int:
        """Lanes for the mean row of those that have entries."""
        filled = 1 - self.f.empty_rows
        return _power_of_two(self.f.mean_row / filled / 3.3) if filled else 1

    def _split(self, mode: str, length: int) -> list[Pass]:
        return [_make("split-entries", length=length, items=4, mode=mode)]

    def _blocked(self) -> list[tuple[float, list[Pass]]]:
        """Rows of blocks, a coordinate for many entries, with the bytes of an entry, fewer than in CSR (16-bit coordinates)."""
        size, found = self.task.element_bytes, []
        for block in _blocks(self.task, self.f):
            cost = (size + 2 / block.places) / block.fill * (1.05 if block.width == 3 else 1.0)  # three make no vector
            if block.height <= 4 and cost < size + 2:
                blocks = self.f.mean_row / block.width / block.fill
                lanes = _power_of_two(min(2 * blocks, max(4, self.m.resident * block.height / 2.5 / max(self.f.rows, 1))))
                share = _make("rows-to-subgroups", lanes=lanes, share="entries") if lanes > 1 else _make("rows-to-threads")
                found.append((cost, [block.encoding, _make("jam-block-rows"), share, _make("unroll", factor=2)]))
        return found

    def _sliced(self) -> Iterator[list[Pass]]:
        slices = _slices(self.f, 32)
        tails = ["halves", "clamp", "loop"] if self.f.mean_row <= 8 else ["halves", "loop"]
        for factor, tail in [*((8, tail) for tail in tails), (4, "halves")]:
            yield [slices, _make("rows-to-threads"), _make("unroll", factor=factor, tail=tail)]

    def _staged(self) -> Iterator[list[Pass]]:
        large, small = ((1024, 128), (2048, 256), (512, 128)), ((512, 128), (256, 64), (1024, 128), (1024, 256))
        long = ((2048, 128), (2048, 256), (1024, 128))
        sizes = long if self.f.mean_row >= 256 else large if self.f.entries > self.m.large else small

        def stage(entries: int, threads: int) -> list[Pass]:
            return [_make("stage-entries", entries=entries, threads=threads, stage="products"), _make("unroll", factor=UNROLL)]

        if self.f.entries > self.m.large:
            yield [*stage(2048, 128), _bound(self.m, 128, registers=48)]
        yield from (stage(*size) for size in sizes)
        if self.f.variation > UNEVEN:
            yield [_make("reorder", rows="degree"), *stage(*sizes[0])]
        yield [*stage(*sizes[0]), _bound(self.m, sizes[0][1])]

    def _binned(self) -> list[Pass]:
        lanes = _power_of_two(self.f.mean_row / 3.3)
        limit = _power_of_two(32 * lanes, 32, 1024)
        return [_make("bin-rows", limit=limit, length=2048, threads=THREADS), *self._shared(lanes)]

    def _shared(self, lanes: int, *before: str) -> list[Pass]:
        rows_to = _make("rows-to-threads") if lanes == 1 else _make("rows-to-subgroups", lanes=lanes, share="entries")
        after = [] if before else [_make("unroll", factor=STEP)]
        return [*map(_make, before), rows_to, *after]


@dataclass(frozen=True)
class _Layout:
    """How SpMM is shared out: a vector of `width` columns a lane, `jam` of them, `lanes` a tile, `groups` of those lanes."""

    width: int
    jam: int
    lanes: int
    groups: int = 1
    segment: int = 0
    unroll: int = 8
    tail: str = "loop"
    extra: str = ""
    slices: Pass | None = None
    tile: int = 0
    coarsen: int = 1
    threads: int = 0
    bound: int = 0

    def passes(self) -> list[Pass]:
        steps = [_make("segment-rows", length=self.segment)] if self.segment else []
        steps += [self.slices] if self.slices else []
        if self.tile:
            steps.append(_make("tile-columns", width=self.tile))
        if self.width > 1:
            steps.append(_make("vectorize", width=self.width))
        if self.jam > 1:
            steps.append(_make("jam-columns", factor=self.jam))
        if self.extra == "vectorize-entries":
            steps.append(_make("vectorize-entries"))
        steps.append(_make("rows-to-subgroups", lanes=self.lanes * self.groups, groups=self.groups, share="columns"))
        if self.extra == "share-loads":
            steps.append(_make("share-loads"))
        if self.coarsen > 1:
            steps.append(_make("coarsen-rows", rows=self.coarsen))
        unroll = 2 if self.extra == "vectorize-entries" else self.unroll
        steps.append(_make("unroll", factor=unroll, tail=self.tail))
        if self.threads:
            steps.append(_make("map-blocks", threads=self.threads))
        return [*steps, _make("bound-launch", blocks=self.bound)] if self.bound else steps


class _SpMM:
    """Lanes share the columns, each a vector of them; groups of lanes share the entries while threads are idle or rows long."""

    def __init__(self, task: Task, f: Features, target: Target, machine: Machine, columns: int) -> None:
        self.task, self.f, self.target, self.m, self.columns = task, f, target, machine, columns
        width = target.load_bytes // task.element_bytes if task.contiguous else 1
        while columns % width:
            width //= 2
        self.width = width

    def schedules(self) -> Iterator[list[Pass]]:
        whole = self._layout(self.width)
        sliced = self._sliced(whole)
        best = whole if sliced is None else sliced
        blocked = self._blocked()
        yield from (steps for cost, steps in blocked[:2] if cost < BLOCK_BEST)
        yield from self._slabs()
        yield from self._ordered(whole)
        if self.columns <= WARP_MATES and self.f.variation > UNEVEN and sliced is None and self._cuttable:
            yield from self._by_length(best)
        even = self.columns // best.width % best.jam == 0  # else the last tile is stored under a condition
        split = [self._split(best, mode) for mode in self._modes()] if best.segment and even else []
        hubs = list(self._hubs()) if best.segment else []
        if HUBS_FROM <= self.columns <= HUBS_TO and self.f.entries > self.m.scattered:
            yield from hubs
        if self.f.mean_row < SCATTERED and self.columns > 16 and self.f.entries > self.m.scattered:
            yield from split
        yield from (layout.passes() for layout in self._unrolled(best))
        yield from self._narrower(best)
        if sliced is None:
            yield from (layout.passes() for layout in self._windowed(whole))
        if self.f.columns * self.columns * self.task.element_bytes > self.m.kept_bytes and self.task.gathers:
            yield [_make("keep-gathered"), *(split[0] if split and self.f.mean_row < SCATTERED else best.passes())]
        yield from split
        yield from hubs
        yield from (steps for cost, steps in blocked if cost < BLOCK_MOST)
        yield replace(best, unroll=8 if best.unroll == UNROLL else UNROLL).passes()
        if sliced is not None:
            yield whole.passes()
        yield from (layout.passes() for layout in (*self._tiled(), *self._spread(best)))
        others = [layout for layout in self._other_layouts(best) if layout != best]
        soon = 2 if self.columns <= 16 else 1
        for layout in others[:soon]:
            yield layout.passes()
        for groups in (2 * best.groups, best.groups // 2):
            if groups and best.lanes * groups <= self.target.warp_size:
                yield replace(whole, groups=groups).passes()
        cut = [n for n in (64, 128, 32) if n != best.segment and n < self.f.max_row] if self._cuttable else []
        for segment in cut[:2]:
            yield replace(whole, segment=segment).passes()
        if best.segment:
            yield replace(best, segment=0).passes()
        yield replace(whole, extra="share-loads", unroll=UNROLL).passes()
        yield replace(whole, tail="halves").passes()
        yield replace(whole, extra="vectorize-entries").passes()
        for layout in others[soon:]:
            yield layout.passes()
        if self._cuttable and _fits_diagonals(self.task, self.f):
            yield replace(whole, segment=0, slices=_make("diagonals"), unroll=UNROLL, tail="halves").passes()
        if self._cuttable and self.f.equal_values:
            yield [_make("uniform-values"), *best.passes()]
        if self.f.empty_rows >= EMPTY and self.task.plain_rows:
            doubly = _make("set-encoding", format="dcsr" if self.task.rows_first else "dcsc")
            yield [doubly, *replace(whole, segment=0).passes()]

    def _unrolled(self, best: _Layout) -> Iterator[_Layout]:
        """The registers of a thread: more of them hide latency, more threads do as well once there is work for all."""
        bounds = dict.fromkeys(self.m.blocks(THREADS, registers) for registers in (REGISTERS, 48))
        bounded = [replace(best, unroll=8, bound=blocks) for blocks in bounds]
        if best.slices is not None:
            yield from [best, *bounded] if self.f.mean_row >= 8 else [best]
        else:
            busy = self.f.entries > self.m.large or self.f.mean_row < 1
            yield from [best, *bounded[::-1]] if busy else [*bounded, best]

    def _narrower(self, best: _Layout) -> Iterator[list[Pass]]:
        """Smaller blocks, which wait less for the longest of their rows; rows of like length, or two of them, side by side."""
        if best.segment:
            yield from self._by_length(best)
        elif best.slices is not None:
            yield replace(best, coarsen=2, unroll=2).passes()
        yield self._narrow(best).passes()

    def _narrow(self, best: _Layout) -> _Layout:
        return replace(best, threads=NARROW, bound=self.m.blocks(NARROW, REGISTERS))

    def _by_length(self, best: _Layout) -> Iterator[list[Pass]]:
        """Rows by falling length: those that share a warp end together.  Whole ones then need next to no padding in slices."""
        order, narrow = _make("reorder", rows="degree"), self._narrow(replace(best, unroll=8))
        height = self.target.warp_size // (best.lanes * best.groups)
        if not best.segment and height > 1 and _fits_marks(self.task, self.f, self.f.padding_sorted):
            slices = _make("slice-rows", height=height, window=WINDOW, offsets=_offset_bits(self.f.columns))
            yield [order, *replace(narrow, slices=slices, tail="halves").passes()]
        yield [order, *narrow.passes()]

    def _slabs(self) -> Iterator[list[Pass]]:
        """So few columns at a time that what is gathered stays in the L2 cache, where rows have few columns in common."""
        f, bytes_a_column = self.f, self.f.columns * self.task.element_bytes
        scattered = f.hot_columns < COLD and f.row_overlap < APART and f.mean_row >= REREAD
        if not (scattered and self._cuttable) or self.columns * bytes_a_column <= self.m.slab_bytes:
            return
        for width in (64, 32, 16):
            if width < self.columns and self.columns % width == 0 and width * bytes_a_column <= self.m.slab_bytes:
                tile = replace(_SpMM(self.task, f, self.target, self.m, width)._layout(self.width), tile=width)
                yield self._narrow(self._sliced(tile) or tile).passes()
                return

    def _ordered(self, whole: _Layout) -> Iterator[list[Pass]]:
        """Rows of like length side by side, where rows have entries in much of all columns.

        They walk over the columns at one pace, and find in the L1 cache what their neighbours have loaded.
        """
        few = self.columns < ORDERED_COLUMNS
        enough = self.f.rows >= self.m.ordered_rows and self.f.entries > (self.m.many if few else self.m.small)
        if not (self._cuttable and self.columns > self.width and enough) or self.f.mean_row * SPREAD < self.f.columns:
            return
        order, warp = _make("reorder", rows="degree"), self.target.warp_size

        def layout(columns: int) -> _Layout:
            vectors = columns // self.width
            lanes = _power_of_two(vectors, most=warp)
            mine = replace(whole, jam=-(-vectors // lanes), lanes=lanes, groups=warp // lanes, segment=0, slices=order)
            return replace(mine, tile=columns if columns < self.columns else 0, unroll=UNROLL)

        tiles = [width for width in (128, 64) if self.columns > width and self.columns % width == 0]
        if self.f.columns <= PANEL_ROWS:
            yield from (self._paced(layout(width), "share-loads", 512) for width in tiles)
        whole_width = replace(layout(self.columns), unroll=8 if self.columns // self.width <= warp else UNROLL)
        loads = [("share-loads", 512), ("share-loads", 256), ("vectorize-entries", 512)]
        yield from (self._paced(whole_width, extra, threads) for extra, threads in (loads[::-1] if few else loads))
        if self.f.columns > PANEL_ROWS:
            yield from (self._paced(layout(width), "share-loads", 512) for width in tiles)

    def _hubs(self) -> Iterator[list[Pass]]:
        """Rows by falling length, cut, and two pieces at a time for lanes, where few columns hold many of the entries.

        Long rows share these columns: those that are walked side by side find in the L1 cache what their neighbours loaded.
        """
        f, vectors, warp = self.f, self.columns // self.width, self.target.warp_size
        if f.hot_columns < HOT or f.row_overlap > APART:
            return
        lanes = _power_of_two(vectors, most=warp)
        jam = -(-vectors // lanes)
        long = f.entries > 2 * self.m.large * (1 if lanes == warp else 2)
        for length in (256, 128) if long else (64, 128):
            steps = [_make("reorder", rows="degree"), _make("segment-rows", length=length)]
            steps += [_make("vectorize", width=self.width)] if self.width > 1 else []
            steps += [_make("jam-columns", factor=jam)] if jam > 1 else []
            steps.append(_make("rows-to-subgroups", lanes=lanes, share="columns"))
            yield [*steps, _make("coarsen-rows", rows=2), _make("map-blocks", threads=NARROW)]

    def _paced(self, layout: _Layout, extra: str, threads: int) -> list[Pass]:
        """Large blocks, whose rows walk side by side, with 64 registers a thread."""
        steps = replace(layout, extra=extra).passes()
        return [*steps, _make("map-blocks", threads=threads), _bound(self.m, threads)]

    def _blocked(self) -> list[tuple[float, list[Pass]]]:
        """Rows of blocks: what a block's columns point to is loaded once for all of its rows, each with sums of its own.

        With what an entry costs, where it costs 1.05 without blocks: a part of a load, and registers for the sums, as often
        as the block has places an entry, and more where too few threads are busy.  The cheapest come first.
        """
        warp, vectors = self.target.warp_size, self.columns // self.width
        lanes = _power_of_two(vectors, most=warp)
        found = []
        for block in _blocks(self.task, self.f):
            rows, per_row = self.f.rows / block.height, self.f.mean_row / block.width / block.fill
            wanted = max(min(self.m.resident / 2 / max(rows * lanes, 1), per_row / 2), per_row / 16)
            groups = _power_of_two(min(wanted, warp / lanes))
            idle = max(1.0, self.m.busy / max(rows * lanes * groups, 1)) ** 0.5
            cost = (1 / block.height + block.height / 20) / block.fill * idle
            steps = [block.encoding, _make("jam-block-rows")]
            if self.width > 1:
                steps.append(_make("vectorize", width=self.width))
            steps.append(_make("rows-to-subgroups", lanes=lanes * groups, groups=groups, share="columns"))
            steps += [_make("unroll", factor=2), _make("map-blocks", threads=NARROW)]
            registers = {8: 128, 4: 80}.get(block.height, REGISTERS)
            found.append((cost, [*steps, _bound(self.m, NARROW, registers)]))
        return sorted(found, key=lambda one: one[0])

    def _modes(self) -> tuple[str, str]:
        """How pieces of cut rows meet: many pieces of one row keep each other's atomics waiting."""
        modes = "atomic", "deterministic"
        return modes[::-1] if _crowded(self.f) else modes

    def _split(self, best: _Layout, mode: str) -> list[Pass]:
        """Entries, not rows, shared out evenly."""
        vectors, warp = self.columns // best.width, self.target.warp_size
        tiles = 2 if vectors == 2 * warp and self.f.entries > self.m.large else 1  # a vector a lane
        jam, lanes = (1, warp) if tiles > 1 else (best.jam, best.lanes)
        steps = [_make("vectorize", width=best.width)] if best.width > 1 else []
        if jam > 1:
            steps.append(_make("jam-columns", factor=jam))
        most = 128 if lanes > 8 else 64
        length = _power_of_two(self.f.entries * lanes / (2 * self.m.resident), 32, most)
        items = 8 if lanes <= 8 and length > 32 else 4
        options = {"lanes": lanes, "share": "columns", "length": length, "items": items, "mode": mode, "tiles": tiles}
        return [*steps, _make("split-entries", **options), _make("map-blocks", threads=NARROW if lanes <= 8 else THREADS)]

    def _tiled(self) -> Iterator[_Layout]:
        """So few columns at a time that what is gathered of them stays in the L1 cache, where rows share many entries."""
        bytes_a_column = self.f.columns * self.task.element_bytes
        if not self.f.columns or self.f.entries < TILE_REUSE * self.f.columns or self.f is _UNKNOWN:
            return
        for width in (64, 32, 16, 8):
            if width < self.columns and self.columns % width == 0 and width * bytes_a_column <= self.m.tile_bytes:
                yield replace(_SpMM(self.task, self.f, self.target, self.m, width)._layout(self.width), tile=width)
                return

    def _spread(self, best: _Layout) -> Iterator[_Layout]:
        """Tiles of the columns side by side, where too few rows leave threads idle."""
        if self._parts(best.segment) * best.lanes * best.groups >= self.m.resident:
            return
        for width in (64, 128):
            if width < self.columns and self.columns % width == 0:
                tile = _SpMM(self.task, self.f, self.target, self.m, width)._layout(self.width)
                yield replace(tile, tile=width, segment=best.segment)

    def _sliced(self, layout: _Layout) -> _Layout | None:
        """Whole rows in slices, as many as share a warp, whose lanes then read neighbouring entries."""
        height = self.target.warp_size // (layout.lanes * layout.groups)
        if height == 1 or layout.segment or not self._cuttable or not _fits_slices(self.task, self.f):
            return None
        return replace(layout, slices=_slices(self.f, height), unroll=UNROLL, tail="halves")

    def _windowed(self, layout: _Layout) -> Iterator[_Layout]:
        """Slices of few rows, for which even rows that differ much find their like in a wide window."""
        height = self.target.warp_size // (layout.lanes * layout.groups)
        fits = self.f.padding_sorted <= PADDING and _fits_marks(self.task, self.f, PADDING)
        if 1 < height <= 4 and not layout.segment and self._cuttable and fits:
            slices = _make("slice-rows", height=height, window=8192, offsets=32)
            yield replace(layout, slices=slices, unroll=UNROLL, tail="halves")

    @property
    def _cuttable(self) -> bool:
        return self.task.plain_rows and self.task.one_sum

    def _layout(self, width: int) -> _Layout:
        jam, lanes = _tiles(self.columns // width, self.f.mean_row, self.target)
        warp = self.target.warp_size
        segment = self._segment(lanes, self._groups(lanes, 0, width))
        if segment and lanes == warp // 2 and jam == 2 and self.f.rows * lanes > self.m.resident:
            jam, lanes = 1, warp  # short walks: more lanes, each with less to keep
        groups = self._groups(lanes, segment, width)
        if segment and self.columns // width <= warp // 4:
            groups = max(groups, min(2 if self.f.entries > self.m.hubs else 4, warp // lanes))
        return _Layout(width, jam, lanes, groups, segment)

    def _groups(self, lanes: int, segment: int, width: int) -> int:
        """Groups of lanes that share the entries of a row, or of a segment: idle threads, and more of them for long rows."""
        warp = self.target.warp_size
        per_row = min(self.f.mean_row, segment or self.f.mean_row)
        idle = self.m.resident / max(self._parts(segment) * lanes, 1)
        few = self.columns // width <= warp // 4
        return _power_of_two(min(max(min(idle, per_row / 1.75), per_row / 16 if few else 1.0), warp / lanes))

    def _parts(self, segment: int) -> float:
        """Rows, or segments of them."""
        return self.f.rows + (self.f.entries / segment if segment else 0)

    def _segment(self, lanes: int, groups: int) -> int:
        """Entries of a segment; 0 where rows stay whole: cut where a row holds up the others, or too few rows are long."""
        if not self._cuttable:
            return 0
        few = self.f.mean_row > 128 and self.f.rows * lanes < self.m.resident
        if not (few or _held_up(self.task, self.f, groups, self.m)):
            return 0
        length = 64 if self.columns <= 32 and self.f.mean_row < 32 else 128
        if self.f.mean_row > 128 and self.f.entries > self.m.many:
            length = 512
        elif self.f.mean_row > 512 and self.columns <= 32:
            length = 256
        if self.f.entries < self.m.small and self.f.mean_row < 32:
            length = 16 if self.columns <= 16 else 32
        return length if self.f.max_row > length else 0

    def _other_layouts(self, best: _Layout) -> Iterator[_Layout]:
        """The columns shared out otherwise: more lanes with less each, or fewer with more."""
        more = min(2 * best.lanes, self.target.warp_size)
        groups = max(1, min(best.groups, self.target.warp_size // more))
        if best.jam == 2:
            yield replace(best, jam=1, lanes=more, groups=groups)
        elif best.jam == 1 and best.lanes > 1 and self.columns % (2 * best.width) == 0:
            yield replace(best, jam=2, lanes=best.lanes // 2)
        if best.width > 2 and best.lanes < self.target.warp_size:
            yield replace(best, width=best.width // 2, lanes=more, groups=groups)
        vectors, warp = self.columns // best.width, self.target.warp_size
        if vectors & (vectors - 1) and best.lanes < warp:  # neighbouring lanes on neighbouring columns, and a few lanes idle
            yield replace(best, jam=-(-vectors // warp), lanes=warp, groups=1)


@dataclass(frozen=True)
class _Block:
    """An encoding in blocks (BSR) and the share of their places that hold entries."""

    encoding: Pass
    height: int
    width: int
    fill: float

    @property
    def places(self) -> int:
        return self.height * self.width


def _blocks(task: Task, f: Features) -> Iterator[_Block]:
    """Encodings in blocks, where the task may choose one and no row holds up its neighbours."""
    if not (task.choose_format and task.rows_first and task.one_sum) or f.max_row > BLOCK_SKEW * f.mean_row:
        return
    for height, fill in {8: f.fill_8, 4: f.fill_4, 3: f.fill_3, 2: f.fill_2}.items():
        if not fill:
            continue
        width = min(height, 4)
        narrow = 16 if f.columns // width < 1 << 16 else 32
        encoding = _make("set-encoding", format="bsr", coordinates=narrow, block_rows=height, block_columns=width)
        yield _Block(encoding, height, width, fill)


def _crowded(f: Features) -> bool:
    """Whether one row has so many entries that atomic additions of its pieces wait for each other."""
    return f.max_row > CROWDED * f.entries


def _bound(machine: Machine, threads: int, registers: int = REGISTERS) -> Pass:
    """So many blocks must fit on a multiprocessor that each thread has at least these registers."""
    return _make("bound-launch", blocks=machine.blocks(threads, registers))


def _offset_bits(span: int) -> int:
    """Of a coordinate that is an offset within so many columns."""
    return 16 if span < 1 << 16 else 32


def _fits_slices(task: Task, f: Features) -> bool:
    """Whether slices have little padding, and coordinates can mark it.

    Rows that differ much are not sorted: neighbours, which share columns, would end up far apart.
    """
    padding = min(f.padding, f.padding_sorted) if f.variation < 0.6 else f.padding
    return padding <= PADDING and _fits_marks(task, f, padding)


def _fits_marks(task: Task, f: Features, padding: float) -> bool:
    """Whether coordinates can mark so many places without an entry."""
    return task.gathers and (task.choose_format or f.columns not in MARKED) and padding * f.entries <= MOST_PLACES


def _slices(f: Features, height: int) -> Pass:
    """Slices with rows sorted where that saves padding, and 16-bit offsets where they reach."""
    window, span = (1, f.span) if f.padding <= 1.1 * f.padding_sorted else (WINDOW, f.span_sorted)
    return _make("slice-rows", height=height, window=window, offsets=_offset_bits(span))


def _fits_diagonals(task: Task, f: Features) -> bool:
    """Whether diagonals with their padding are fewer bytes than coordinates and values."""
    return task.gathers and f.entries > 0 and f.diagonal_padding * task.element_bytes < 4 + task.element_bytes


def _narrow(task: Task, f: Features) -> int | None:
    """Bits of an offset from the first column of a row, where they are fewer than `_encoding` stores."""
    stored = _coordinate_bits(task)
    return next((bits for bits in (8, 16) if bits < stored and 0 < f.row_span <= 1 << bits), None) if task.gathers else None


def _power_of_two(limit: float, least: int = 1, most: int = 32) -> int:
    """The largest power of two that is at most `limit`, from `least` to `most`."""
    n = least
    while n < most and 2 * n <= limit:
        n *= 2
    return n


def _held_up(task: Task, f: Features, lanes: int, machine: Machine) -> bool:
    """Whether the walk over the longest row is much of the time that everything takes, when `lanes` lanes share its entries."""
    walk = STEP_US * f.max_row / (UNROLL * lanes)
    moved = f.entries * (4 + task.element_bytes * max(1, task.columns or 1))
    return walk > 2 + (0.15 if task.columns else 0.6) * (LAUNCH_US + moved / machine.bytes_per_us)


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
