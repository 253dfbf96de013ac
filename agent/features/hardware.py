"""How an operation meets a GPU: what its caches hold, how often its threads are filled, what a launch costs beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from sparseditto.agent.features.definition import Kind, feature
from sparseditto.agent.features.operation import Operation
from sparseditto.agent.features.pattern import Features
from sparseditto.dialects.errors import InputError

WARP = 32
_feature = partial(feature, kind=Kind.HARDWARE)
_cached = partial(_feature, unit="1", estimated=True)


@dataclass(frozen=True)
class Hardware:
    """What the features need to know of a GPU.

    `l1_bytes` of one multiprocessor and `l2_bytes` of all are capacities; `resident_threads` is what one multiprocessor holds;
    `dram_bytes_per_us` is the rate of a large copy, bytes read plus bytes written; `launch_us` the time of an empty kernel.
    The defaults are those of an H200.  Raises `InputError` unless all are positive.
    """

    name: str = "H200"
    sm_count: int = 132
    resident_threads: int = 2048
    l1_bytes: int = 256 << 10
    l2_bytes: int = 60 << 20
    dram_bytes_per_us: float = 4.3e6
    launch_us: float = 2.5

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise InputError(f"{field.name}={value}: a number above 0 is needed", where=self.name)

    @property
    def threads(self) -> int:
        """That are resident at a time."""
        return self.sm_count * self.resident_threads

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Hardware:
        """What `to_json` gave.  Raises `InputError` unless it names every field, and no other."""
        names = {field.name for field in fields(Hardware)}
        if not isinstance(data, dict) or data.keys() != names:
            raise InputError(f"a GPU is described by {', '.join(sorted(names))}")
        return Hardware(**data)


@dataclass(frozen=True)
class Fit:
    """One call on one GPU."""

    matrix_l2: float = _feature("matrix_bytes / l2_bytes", unit="1")
    operand_l1: float = _cached("operand_bytes / l1_bytes")
    operand_l2: float = _cached("operand_bytes / l2_bytes")
    output_l2: float = _cached("output_bytes / l2_bytes")
    working_set_l2: float = _cached("compulsory_bytes / l2_bytes")
    slice_l1: float = _cached("operand_bytes * (span / columns) / l1_bytes: what 32 rows may read of the operand")
    thread_waves: float = _feature("rows / (sm_count * resident_threads): a thread a row", unit="waves")
    warp_waves: float = _feature("32 * rows / (sm_count * resident_threads): a warp a row", unit="waves")
    entries_a_thread: float = _feature("entries / (sm_count * resident_threads)", unit="entries")
    longest_over_share: float = _feature(
        "max_row / (entries / sm_count): above 1 one row holds up a multiprocessor; 0 without entries", unit="1"
    )
    bound_us: float = _feature("compulsory_bytes / dram_bytes_per_us", unit="us", estimated=True)
    launch_share: float = _feature("launch_us / bound_us", unit="1", estimated=True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def fit(f: Features, operation: Operation, gpu: Hardware) -> Fit:
    bound = operation.compulsory_bytes / gpu.dram_bytes_per_us
    return Fit(
        matrix_l2=operation.matrix_bytes / gpu.l2_bytes,
        operand_l1=operation.operand_bytes / gpu.l1_bytes,
        operand_l2=operation.operand_bytes / gpu.l2_bytes,
        output_l2=operation.output_bytes / gpu.l2_bytes,
        working_set_l2=operation.compulsory_bytes / gpu.l2_bytes,
        slice_l1=operation.operand_bytes * f.span / f.columns / gpu.l1_bytes if f.columns else 0.0,
        thread_waves=f.rows / gpu.threads,
        warp_waves=WARP * f.rows / gpu.threads,
        entries_a_thread=f.entries / gpu.threads,
        longest_over_share=f.max_row * gpu.sm_count / f.entries if f.entries else 0.0,
        bound_us=bound,
        launch_share=gpu.launch_us / bound,
    )
