"""Making the graph of a GPU: of one that the table knows, or of one that a driver describes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparseditto.agent.architecture.architecture import Architecture, superseding
from sparseditto.agent.architecture.quantity import Quantity, Value
from sparseditto.agent.architecture.table import Entry, find, known, lookup
from sparseditto.agent.architecture.vocabulary import FIELDS, Scope
from sparseditto.dialects.errors import InputError

DRIVER = "the driver of the GPU at hand"

# Attributes as the CUDA driver API names them (CU_DEVICE_ATTRIBUTE_…), the field that each one is, and how many of the
# attribute's units the field's unit has (clocks are in kHz, shared memory in bytes).
ATTRIBUTES: dict[str, tuple[str, int]] = {
    "multiprocessor_count": ("sm_count", 1),
    "clock_rate": ("boost_clock_mhz", 1000),
    "memory_clock_rate": ("mem_clock_mhz", 1000),
    "global_memory_bus_width": ("dram_bus_bits", 1),
    "l2_cache_size": ("l2_bytes", 1),
    "max_persisting_l2_cache_size": ("l2_persisting_max_bytes", 1),
    "warp_size": ("warp_size", 1),
    "max_threads_per_block": ("max_threads_per_block", 1),
    "max_threads_per_multiprocessor": ("max_threads_per_sm", 1),
    "max_blocks_per_multiprocessor": ("max_blocks_per_sm", 1),
    "max_registers_per_multiprocessor": ("regs_per_sm", 1),
    "max_registers_per_block": ("max_regs_per_block", 1),
    "max_shared_memory_per_multiprocessor": ("smem_per_sm_kib", 1024),
    "max_shared_memory_per_block": ("smem_per_block_static_kib", 1024),
    "max_shared_memory_per_block_optin": ("smem_per_block_optin_kib", 1024),
    "reserved_shared_memory_per_block": ("smem_reserved_per_block_bytes", 1),
}


@dataclass(frozen=True)
class Correction:
    """A place where the driver says something else than the table did."""

    place: str
    table: Value
    driver: Value


def named(name: str) -> Architecture:
    """The graph of a GPU of the table.  Raises `InputError` with suggestions where there is none of that name."""
    return _of_table(find(name).name)


@functools.cache
def _of_table(name: str) -> Architecture:
    return _architecture(name, known()[name].facts)


def from_driver(name: str, capability: tuple[int, int], attributes: Mapping[str, int]) -> tuple[Architecture, list[Correction]]:
    """The graph of a GPU that a driver describes: its name, its compute capability, and `ATTRIBUTES` (others are not read).

    Of a known GPU: the table's values, corrected by what the driver says, and the corrections.  Of another one: the driver's
    values; what holds for every GPU of a compute capability is assumed to be as in the known one with the nearest number of
    multiprocessors; all else is unknown.  Raises `InputError` when the driver contradicts the known GPU's compute capability.
    """
    told = {field: _told(attributes[key], field, per) for key, (field, per) in ATTRIBUTES.items() if attributes.get(key)}
    told["compute_capability"] = Quantity("{}.{}".format(*capability), "", "device", DRIVER)
    entry = lookup(name)
    if entry is None:
        return _architecture(name, _guessed(told)), []
    corrections = _corrections(entry, told)
    if any(c.place == "gpu.compute_capability" for c in corrections):
        stated = entry.facts["compute_capability"].value
        raise InputError("a GPU named {} has compute capability {}, not {}.{}".format(name, stated, *capability))
    changed = {str(FIELDS[f]) for f in told} & {c.place for c in corrections}
    facts = dict(entry.facts)
    for field, fact in told.items():
        if facts[field].value is None or str(FIELDS[field]) in changed:
            facts[field] = superseding(fact, facts[field])
    return _architecture(entry.name, facts | _peaks(entry, facts)), corrections


def _architecture(name: str, facts: Mapping[str, Quantity]) -> Architecture:
    return Architecture.of(name, {str(FIELDS[field]): fact for field, fact in facts.items()})


def _told(number: int, field: str, per: int) -> Quantity:
    """A driver's number in the graph's unit."""
    scale = FIELDS[field].scale
    value = number * scale / per
    return Quantity(int(value) if value.is_integer() else value, FIELDS[field].unit, "device", DRIVER)


def _corrections(entry: Entry, told: Mapping[str, Quantity]) -> list[Correction]:
    return [
        Correction(str(FIELDS[field]), entry.facts[field].value, fact.value)
        for field, fact in told.items()
        if entry.facts[field].value is not None and entry.facts[field].value != fact.value
    ]


def _peaks(entry: Entry, facts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The table's peak rates for other numbers of multiprocessors or another clock; none where those are as they were."""
    ratio = 1.0
    for field in ("sm_count", "boost_clock_mhz"):
        before, now = entry.facts[field].number, facts[field].number
        assert before is not None, f"{entry.name}: the table needs {field}"
        assert now is not None
        ratio *= now / before
    if ratio == 1.0:
        return {}
    source = "derived: the table's value, times the driver's multiprocessors and clock over the table's"
    peaks = {}
    for field, fact in facts.items():
        if FIELDS[field].unit == "TFLOP/s" and fact.number is not None:
            scaled = replace(fact, value=fact.number * ratio, kind="derived", source=source, alternates=())
            peaks[field] = superseding(scaled, fact)
    return peaks


def _guessed(told: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The facts of a GPU that the table does not have."""
    nearest = _nearest(told)
    facts = {}
    for field, place in FIELDS.items():
        if field in told:
            facts[field] = told[field]
        elif nearest is not None and place.scope is Scope.CAPABILITY and nearest.facts[field].value is not None:
            facts[field] = replace(nearest.facts[field], kind="assumed", source=f"as the {nearest.name}", alternates=())
        else:
            facts[field] = Quantity.unknown(place.unit, "the driver does not tell it")
    return facts | _bandwidth(facts)


def _nearest(told: Mapping[str, Quantity]) -> Entry | None:
    """Of the known GPUs of this compute capability the one with the nearest number of multiprocessors."""
    same = [e for e in known().values() if e.facts["compute_capability"].value == told["compute_capability"].value]
    count = (told["sm_count"].number if "sm_count" in told else None) or 0.0
    return min(same, key=lambda e: abs((e.facts["sm_count"].number or 0.0) - count), default=None)


def _bandwidth(facts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Device memory moves the width of its bus twice a clock."""
    bits, clock = facts["dram_bus_bits"].number, facts["mem_clock_mhz"].number
    if bits is None or clock is None:
        return {}
    source = "derived: dram.bus / 8 * 2 * dram.clock / 1000"
    return {"dram_bw_gbs": Quantity(bits / 8 * 2 * clock / 1000, "GB/s", "derived", source)}
