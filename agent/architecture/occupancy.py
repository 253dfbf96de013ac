"""How many blocks of a kernel a multiprocessor holds at a time, and what a kernel asks for that it cannot have.

The rules are those of NVIDIA's occupancy calculator (`cuda_occupancy.h` of the CUDA Toolkit), for kernels that may have all
of the shared memory that a multiprocessor offers, and that use no named barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.dialects.errors import InputError


@dataclass(frozen=True)
class Occupancy:
    """`blocks` and `warps` that one multiprocessor holds at a time; `share` is the warps over the most that it can hold.

    `limits` is how many blocks each resource ("warps", "blocks", "registers", "shared memory") would allow; a resource
    of which a block takes nothing is left out.  `limiters` are those that allow the fewest.
    """

    blocks: int
    warps: int
    share: float
    limits: Mapping[str, int]
    limiters: tuple[str, ...]


@dataclass(frozen=True)
class Violation:
    """A kernel needs more of `resource` than there is; both numbers are in `unit`."""

    resource: str
    needed: int
    available: int
    unit: str

    def __str__(self) -> str:
        return f"{self.resource}: {self.needed} {self.unit} are needed, {self.available} are there"


def occupancy(architecture: Architecture, registers: int, shared_bytes: int, threads: int) -> Occupancy:
    """The occupancy of a kernel that takes `registers` a thread and `shared_bytes` a block of `threads` threads.

    With W = ceil(threads / warp size) warps a block, the resources of a multiprocessor allow so many blocks:

    - warps: floor(most warps / W);
    - blocks: the most blocks that it holds;
    - registers: each of the S schedulers has 1 / S of the register file; a warp takes R = registers x warp size, rounded up to
      the allocation unit, and stays with its scheduler: floor(floor(capacity / S / R) x S / W), and none where R x W, with W
      rounded up to a multiple of S, exceeds what a block may have;
    - shared memory: floor(capacity / M), with M what is asked for and what is reserved for each block, rounded up to the
      allocation unit.

    A block that asks for more than a block may have does not run: 0 blocks.  Raises `InputError` on numbers below 1 thread or
    0 of the others, `Unsupported` where the graph lacks a number.
    """
    use = _Use(architecture, registers, shared_bytes, threads)
    limits = use.limits()
    blocks = min(limits.values())
    warps = blocks * use.warps
    limiters = tuple(name for name, limit in limits.items() if limit == blocks)
    return Occupancy(blocks, warps, warps / use.of("sm.max_warps"), limits, limiters)


def check(architecture: Architecture, registers: int, shared_bytes: int, threads: int, blocks: int = 1) -> list[Violation]:
    """What stops `blocks` blocks of a kernel from being on one multiprocessor at a time, with the numbers; empty: nothing.

    First what no block may exceed; where all of that is kept, what the blocks together exceed.  Raises as `occupancy` does.
    """
    if blocks < 1:
        raise InputError(f"at least 1 block is asked for, not {blocks}")
    use = _Use(architecture, registers, shared_bytes, threads)
    alone = [v for v in use.of_a_block() if v.needed > v.available]
    if alone:
        return alone
    return [
        Violation(name, blocks, limit, "blocks on a multiprocessor") for name, limit in use.limits().items() if limit < blocks
    ]


@dataclass(frozen=True)
class _Use:
    """What a kernel takes of an architecture."""

    architecture: Architecture
    registers: int
    shared_bytes: int
    threads: int

    def __post_init__(self) -> None:
        if self.threads < 1 or self.registers < 0 or self.shared_bytes < 0:
            raise InputError(
                f"a kernel has at least 1 thread a block and no fewer than 0 registers and bytes of shared memory, "
                f"not {self.threads}, {self.registers} and {self.shared_bytes}"
            )

    def of(self, place: str) -> int:
        return int(self.architecture.needed(place))

    @property
    def warps(self) -> int:
        return -(-self.threads // self.of("sm.warp_size"))

    @property
    def warp_registers(self) -> int:
        """Registers that one warp is given."""
        return round_up(self.registers * self.of("sm.warp_size"), self.of("registers.allocation_unit"))

    @property
    def block_registers(self) -> int:
        """Registers that a block is counted with: every scheduler has as many of its warps."""
        return self.warp_registers * round_up(self.warps, self.of("sm->scheduler.count"))

    @property
    def block_shared(self) -> int:
        """Bytes of shared memory that a block is given."""
        return round_up(self.shared_bytes + self.of("shared.reserved_per_block"), self.of("shared.allocation_unit"))

    def of_a_block(self) -> Iterator[Violation]:
        """What one block takes against what one block may have."""
        yield Violation("threads", self.threads, self.of("sm.max_threads_per_block"), "threads a block")
        yield Violation("registers", self.registers, self.of("registers.max_per_thread"), "registers a thread")
        yield Violation("registers", self.block_registers, self.of("registers.max_per_block"), "registers a block")
        yield Violation("shared memory", self.shared_bytes, self.of("shared.max_per_block"), "bytes a block")

    def limits(self) -> dict[str, int]:
        exceeded = {v.resource for v in self.of_a_block() if v.needed > v.available}
        limits = {
            "warps": 0 if "threads" in exceeded else self.of("sm.max_warps") // self.warps,
            "blocks": self.of("sm.max_blocks"),
        }
        if self.registers:
            schedulers = self.of("sm->scheduler.count")
            resident = self.of("registers.capacity") // schedulers // self.warp_registers * schedulers
            limits["registers"] = 0 if "registers" in exceeded else resident // self.warps
        if self.block_shared:
            limits["shared memory"] = 0 if "shared memory" in exceeded else self.of("shared.capacity") // self.block_shared
        return limits


def round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
