"""The graph of a GPU: its table, what holds for every graph, the queries by NVIDIA's rules, the probe, and the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from sparseditto.agent.architecture import table
from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import ATTRIBUTES, Correction, from_driver, named
from sparseditto.agent.architecture.difference import difference
from sparseditto.agent.architecture.flow import DEMANDS, bottleneck, path, per_second, rate_of
from sparseditto.agent.architecture.measured import Measurements, with_measured
from sparseditto.agent.architecture.occupancy import Violation, check, occupancy
from sparseditto.agent.architecture.quantity import Alternate, Quantity
from sparseditto.agent.architecture.vocabulary import EDGES, FIELDS, MEASURABLE, NODES, Relation, Scope
from sparseditto.compiler import probing
from sparseditto.compiler.architecture_plot import write_png
from sparseditto.compiler.cli import main as sparseditto_main
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.compiler.execute import check as check_result
from sparseditto.compiler.execute import run_simt
from sparseditto.compiler.probing import Sizes, experiments, probe, results
from sparseditto.compiler.runtimes import cuda, libcuda
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.compiler.runtimes.timing import summary
from sparseditto.compiler.sizes import evaluate
from sparseditto.dialects.errors import CheckFailed, DeviceError, InputError, Unsupported
from sparseditto.dialects.target import CHIPS

NAMES = list(table.known())
H200 = {
    "multiprocessor_count": 132,
    "clock_rate": 1_980_000,
    "memory_clock_rate": 3_201_000,
    "global_memory_bus_width": 6144,
    "l2_cache_size": 62_914_560,
    "max_shared_memory_per_multiprocessor": 233_472,
    "max_blocks_per_multiprocessor": 32,
    "max_persisting_l2_cache_size": 39_321_600,
}
UNITS = {"SMs", "schedulers", "tensor cores", "banks"} | {
    "",
    "B",
    "GB",
    "bit",
    "registers",
    "threads",
    "warps",
    "blocks",
    "MHz",
    "cycles",
    "ns",
    "us",
    "TFLOP/s",
}


# ------------------------------------------------------------------------------------------------------------------ the table


@pytest.mark.parametrize(
    "said",
    ["h200", "H200 SXM", "NVIDIA H200", "h200_sxm", "nvidia geforce rtx 4090", "Tesla V100-SXM2-16GB", "NVIDIA H100 80GB HBM3"],
)
def test_names_are_matched_leniently(said: str) -> None:
    expected = {"4": "RTX 4090", "V": "V100", "1": "H100 SXM"}
    key = "4" if "4090" in said else "V" if "V100" in said else "1" if "H100" in said else ""
    assert table.find(said).name == expected.get(key, "H200 SXM")


@pytest.mark.parametrize(
    ("said", "near"),
    [
        ("a100", "'A100-40GB' or 'A100-80GB'"),
        ("h201", "did you mean 'h200'"),
        ("RTX 4099", "'rtx 4090'"),
        ("mi300", "there are V100"),
    ],
)
def test_unknown_names_get_a_suggestion(said: str, near: str) -> None:
    with pytest.raises(InputError, match=f"'{said}' is no known GPU.*{near}"):
        table.find(said)


@pytest.mark.parametrize("said", ["RTX 3090 Ti", "L40", "A10G", "H100 NVL", "RTX 4090 Laptop GPU", "", "GPU"])
def test_other_models_are_not_taken_for_known_ones(said: str) -> None:
    assert table.lookup(said) is None


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    """The project's table after a change to the entry of the T4."""
    text = Path(table.__file__).with_name("gpus.json").read_text(encoding="utf-8")
    data = json.loads(text)
    change(data["gpus"]["T4"])
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e["facts"].pop("sm_count"), "T4: lacks sm_count"),
        (lambda e: e["facts"].update(sm_cuont=1), "has a field 'sm_cuont'; did you mean 'sm_count'"),
        (lambda e: e["facts"]["sm_count"].update(value=None), "does not go with kind"),
        (lambda e: e["facts"]["sm_count"].update(value=None, kind="none"), "sm_count: must be known"),
        (lambda e: e["facts"]["has_tma"].update(value=1), "has_tma: 1 is no bool"),
        (lambda e: e["facts"]["tensor_types"].update(value=["fp16", 3]), "3. is no str"),
        (lambda e: e["facts"]["sm_count"].update(value="forty"), "'forty' is no number of SMs"),
        (lambda e: e["facts"]["l2_bytes"].update(value="forty"), "l2_bytes: 'forty' is no number of B"),
        (lambda e: e["facts"]["l2_bytes"].update(value=-1), "-1 is no number of B"),
        (lambda e: e["facts"]["l2_bytes"].update(value={}), "a value is a number, text"),
        (lambda e: e["facts"]["l2_bytes"].update(kind="guess"), "'guess' is no kind of value"),
        (lambda e: e["facts"]["l2_bytes"].update(kind="derived"), "'derived: ' and its formula"),
        (lambda e: e["facts"]["l2_bytes"].update(source=""), "needs a source"),
        (lambda e: e["facts"]["l2_bytes"].update(unit="B"), "its unit is the field's"),
        (lambda e: e["facts"]["l2_bytes"].pop("source"), "l2_bytes: this value has"),
        (lambda e: e["facts"].update(l2_bytes=[]), "a fact is an object"),
        (lambda e: e["facts"]["l2_bytes"].update(alternates=[{"value": 1}]), "this alternate has value"),
        (
            lambda e: e["facts"]["l2_bytes"].update(alternates=[{"value": 1, "source": "x", "measured_on": "L4"}]),
            "of another GPU",
        ),
        (lambda e: e.update(aliases=["H200"]), "'h200' stands for T4 and for H200 SXM"),
        (lambda e: e.update(aliases="H200"), "aliases are a list"),
        (lambda e: e.pop("aliases"), "needs aliases and facts"),
    ],
)
def test_a_table_that_breaks_its_schema_is_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        table.parse_table(edited(change), "mine.json")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"schema": 2, "gpus": {}}'])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"mine.json: is (not JSON|no table|of schema 2)"):
        table.parse_table(text, "mine.json")


def test_every_chip_that_we_compile_for_has_a_gpu() -> None:
    plain = {chip for chip in CHIPS if chip[-1].isdigit()}
    assert {named(name).target().chip for name in NAMES} == plain


# ----------------------------------------------------------------------------------------------------------------- the graphs


@pytest.mark.parametrize("name", NAMES)
def test_what_holds_for_every_graph(name: str) -> None:
    architecture = named(name)
    graph = architecture.graph
    assert set(graph.nodes) == set(NODES)
    assert set(EDGES) - set(graph.edges) <= {("l2", "shared")}
    assert nx.is_frozen(graph)
    assert nx.descendants(graph, "gpu") | {"gpu"} == set(NODES)
    contained = nx.DiGraph([(a, b) for a, b, r in graph.edges.data("relation") if r == Relation.CONTAINS.value])
    assert nx.is_arborescence(nx.subgraph(contained, nx.descendants(contained, "sm") | {"sm"}))
    for place, quantity in architecture.values.items():
        rate = quantity.unit.rpartition("/")[2] in ("s", "clk", "SM")
        assert rate or quantity.unit in UNITS, place
        if quantity.kind == "derived":
            assert quantity.source.startswith("derived:"), place


@pytest.mark.parametrize("name", NAMES)
def test_the_table_agrees_with_itself(name: str) -> None:
    """Peaks are rate x multiprocessors x clock; each level of memory is slower; a block may have what a multiprocessor has."""
    a = named(name)
    for pipe, tolerance in (("fp32", 0.015), ("fp64", 0.015)):
        assert per_second(a, a.get(f"{pipe}.rate"), pipe) == pytest.approx(a.needed(f"{pipe}.peak") * 1e12, rel=tolerance)
    assert per_second(a, a.get("tensor.rate"), "tensor") == pytest.approx(a.needed("tensor.peak_fp16") * 1e12, rel=0.02)
    latencies = [a.number(f"{level}.latency") for level in ("l1", "l2", "dram")]
    known = [latency for latency in latencies if latency is not None]
    assert known == sorted(known)
    assert a.needed("sm.max_threads") == a.needed("sm.max_warps") * a.needed("sm.warp_size")
    reserved = a.needed("shared.reserved_per_block")
    assert a.needed("shared.max_per_block") + reserved == a.needed("shared.capacity") <= a.needed("l1.capacity")
    measured = a.number("dram->l2.measured_rate")
    assert measured is None or 0.6 < measured / a.needed("dram->l2.rate") <= 1


@pytest.mark.parametrize("name", NAMES)
def test_json_and_graphml_round_trip(name: str) -> None:
    architecture = named(name)
    assert Architecture.from_json(json.loads(json.dumps(architecture.to_json(), allow_nan=False))) == architecture
    read = nx.parse_graphml(architecture.to_graphml())
    assert set(read.nodes) == set(architecture.graph.nodes)
    assert set(read.edges) == set(architecture.graph.edges)
    for place, quantity in architecture.values.items():
        where, _, attribute = place.rpartition(".")
        found = read.edges[where.split("->")] if "->" in where else read.nodes[where]
        value = ", ".join(map(str, quantity.value)) if isinstance(quantity.value, tuple) else quantity.value
        assert found.get(attribute) == (value if quantity.value is not None else None)
        assert found[f"{attribute}.kind"] == quantity.kind
        assert found[f"{attribute}.source"] == quantity.source
        others = [Alternate.from_json(a) for a in json.loads(found.get(f"{attribute}.alternates", "[]"))]
        assert tuple(others) == quantity.alternates


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=2), "of schema 2"),
        (lambda d: d.pop("edges"), "this is no architecture"),
        (lambda d: d["nodes"].update(l3=d["nodes"]["l2"]), "no place 'l3"),
        (lambda d: d["edges"].update({"dram->fp32": d["edges"]["dram->l2"]}), "no place 'dram->fp32"),
        (lambda d: d["edges"].pop("scheduler->fp32"), "not made of the nodes and edges"),
        (lambda d: d["nodes"]["l2"].update(capacity=3), "this value is no object"),
    ],
)
def test_json_that_is_no_architecture_is_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    data = named("T4").to_json()
    change(data)
    with pytest.raises(InputError, match=message):
        Architecture.from_json(data)


def test_the_graph_is_frozen_and_changes_make_copies() -> None:
    before = named("T4")
    with pytest.raises(nx.NetworkXError):
        before.graph.add_node("l3")
    with pytest.raises(TypeError):
        before.values["l2.capacity"] = Quantity(1, "B", "measured", "me")  # type: ignore[index]
    after = before.with_values({"l2.capacity": Quantity(1, "B", "measured", "me")})
    assert (before.number("l2.capacity"), after.number("l2.capacity")) == (4 << 20, 1)
    assert after.get("l2.capacity").alternates[0] == Alternate(4 << 20, before.get("l2.capacity").source)
    assert before == named("T4") != after


def test_what_is_not_known_is_not_made_up() -> None:
    t4 = named("T4")
    assert t4.number("launch.graph_period") is None
    with pytest.raises(Unsupported, match=r"'launch\.graph_period' is not known"):
        t4.needed("launch.graph_period")
    with pytest.raises(InputError, match=r"the graph of T4 has no 'l3\.capacity'"):
        t4.get("l3.capacity")
    assert not t4.graph.has_edge("l2", "shared")  # no asynchronous copies before sm_80
    for quantity in named("RTX 4090").values.values():
        assert (quantity.value is None) == (quantity.kind == "none")


def test_targets_have_the_limits_of_their_gpu() -> None:
    target = named("RTX 3090").target()
    assert (target.chip, target.threads_per_multiprocessor, target.multiprocessors) == ("sm_86", 1536, 82)
    newer, _ = from_driver(
        "Some GPU", (10, 3), {"multiprocessor_count": 160, "warp_size": 32, "max_threads_per_multiprocessor": 2048}
    )
    assert (newer.target().chip, newer.target().multiprocessors) == ("sm_100", 160)
    with pytest.raises(Unsupported, match=r"compute capability 6\.0"):
        from_driver("Tesla P100", (6, 0), {})[0].target()


# ----------------------------------------------------------------------------------------------------------------- the driver


def test_a_known_gpu_is_corrected_by_its_driver() -> None:
    architecture, corrections = from_driver("NVIDIA H200", (9, 0), H200 | {"multiprocessor_count": 120, "odd": 3})
    assert corrections == [Correction("gpu->sm.count", 132, 120)]
    count = architecture.get("gpu->sm.count")
    assert (count.value, count.kind, count.alternates[0].value) == (120, "device", 132)
    peak = architecture.get("fp32.peak")
    assert (peak.number, peak.kind) == (pytest.approx(66.9 * 120 / 132), "derived")
    assert architecture.number("l2.max_persisting") == 39_321_600  # which the table does not know
    assert architecture.get("gpu.clock") == named("H200").get("gpu.clock")


def test_a_driver_that_agrees_changes_nothing_it_need_not() -> None:
    architecture, corrections = from_driver("NVIDIA H200", (9, 0), H200 | {"l2_cache_size": 0})
    assert corrections == []
    assert {d.place for d in difference(named("H200"), architecture)} == {"l2.max_persisting"}


def test_a_driver_may_not_contradict_the_capability() -> None:
    with pytest.raises(InputError, match=r"H200 has compute capability 9\.0, not 8\.0"):
        from_driver("NVIDIA H200", (8, 0), H200)


def test_an_unknown_gpu_takes_over_what_its_capability_shares() -> None:
    told = {
        "multiprocessor_count": 50,
        "memory_clock_rate": 9_000_000,
        "global_memory_bus_width": 192,
        "l2_cache_size": 1 << 25,
    }
    architecture, corrections = from_driver("NVIDIA L39", (8, 9), told)
    assert corrections == []
    assert architecture.name == "NVIDIA L39"
    cores = architecture.get("fp32.rate")
    assert (cores.number, cores.kind, cores.source) == (128, "assumed", "as the L4")
    assert architecture.get("gpu->sm.count").kind == "device"
    bandwidth = architecture.get("dram->l2.rate")
    assert (bandwidth.number, bandwidth.kind) == (432, "derived")
    for field, place in FIELDS.items():
        if place.scope is Scope.MODEL and architecture.get(str(place)).value is not None:
            assert architecture.get(str(place)).kind in ("device", "derived"), field


def test_a_gpu_of_an_unknown_capability_has_only_what_its_driver_tells() -> None:
    architecture, _ = from_driver("NVIDIA X1", (13, 0), {"multiprocessor_count": 50})
    known = {place for place, quantity in architecture.values.items() if quantity.value is not None}
    assert known == {"gpu->sm.count", "gpu.compute_capability"}


# ------------------------------------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize(
    ("gpu", "registers", "shared", "threads", "blocks", "share", "limiter"),
    [
        ("V100", 37, 0, 128, 12, 0.75, "registers"),  # CUDA C++ Best Practices Guide, "Calculating Occupancy"
        ("V100", 37, 0, 320, 4, 0.625, "registers"),  # the same
        ("A100-80GB", 16, 0, 1024, 2, 1.0, "warps"),  # Ampere tuning guide: 64 warps, 32 blocks, 163 KB a block
        ("A100-80GB", 32, 0, 32, 32, 0.5, "blocks"),
        ("A100-80GB", 32, 163 * 1024, 1024, 1, 0.5, "shared memory"),
        ("A10", 32, 0, 1024, 1, 2 / 3, "warps"),  # the same for 8.6: 48 warps, 16 blocks, 99 KB a block
        ("A10", 32, 0, 32, 16, 1 / 3, "blocks"),
        ("A10", 32, 49 * 1024, 128, 2, 1 / 6, "shared memory"),
        ("H100 SXM", 32, 227 * 1024, 1024, 1, 0.5, "shared memory"),  # Hopper tuning guide: 64 warps, 227 KB a block
        ("H200", 64, 0, 256, 4, 0.5, "registers"),
        ("RTX 5090", 32, 0, 32, 24, 0.5, "blocks"),  # Programming Guide 13, compute capability 12.0: 48 warps, 24 blocks
        ("RTX 5090", 128, 0, 256, 2, 1 / 3, "registers"),
        ("RTX 5090", 32, 0, 1025, 0, 0, "warps"),
        ("RTX 5090", 32, 100 * 1024, 64, 0, 0, "shared memory"),
        ("RTX 5090", 256, 0, 64, 0, 0, "registers"),
    ],
)
def test_occupancy(gpu: str, registers: int, shared: int, threads: int, blocks: int, share: float, limiter: str) -> None:
    found = occupancy(named(gpu), registers, shared, threads)
    assert (found.blocks, found.limiters) == (blocks, (limiter,))
    assert found.share == pytest.approx(share)
    assert found.warps == blocks * -(-threads // 32)


CALCULATOR = """
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int major, minor, threads_sm, registers, shared, threads, optin, per_sm, reserved;
  while (std::scanf("%d %d %d %d %d %d %d %d %d", &major, &minor, &threads_sm, &optin, &per_sm, &reserved,
                    &registers, &shared, &threads) == 9) {
    cudaOccDeviceProp p;
    p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = threads_sm;
    p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536; p.warpSize = 32; p.sharedMemPerBlock = 49152;
    p.sharedMemPerMultiprocessor = per_sm; p.numSms = 1; p.sharedMemPerBlockOptin = optin;
    p.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes a;
    a.maxThreadsPerBlock = 1024; a.numRegs = registers; a.sharedSizeBytes = 0; a.partitionedGCConfig = PARTITIONED_GC_OFF;
    a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = shared;
    cudaOccDeviceState s;
    s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult r;
    int code = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared);
    std::printf("%d %d\\n", code, r.activeBlocksPerMultiprocessor);
  }
}
"""


def calculator_header() -> Path | None:
    return next(iter(Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/*/include/cuda_occupancy.h")), None)


@pytest.mark.skipif(
    calculator_header() is None or shutil.which("g++") is None, reason="needs g++ and cuda_occupancy.h (nvidia-cuda-nvcc)"
)
def test_occupancy_is_that_of_nvidias_calculator(tmp_path: Path) -> None:
    header = calculator_header()
    assert header is not None
    (tmp_path / "calculator.cpp").write_text(CALCULATOR)
    build = ["g++", "-I", str(header.parent), "calculator.cpp", "-o", "calculator"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    rng = np.random.default_rng(0)
    cases = []
    for gpu in ("V100", "T4", "A100-80GB", "A10", "L40S", "H200", "B200", "RTX 5090"):
        a = named(gpu)
        limits = [
            a.needed("sm.max_threads"),
            *(a.needed(f"shared.{p}") for p in ("max_per_block", "capacity", "reserved_per_block")),
        ]
        for _ in range(500):
            shared = int(rng.integers(0, int(limits[1]) + 1) * rng.random() ** 2)
            kernel = (int(rng.integers(1, 256)), shared, int(rng.integers(1, 1025)))
            cases.append((gpu, [*a.capability, *map(int, limits)], kernel))
    text = "\n".join(" ".join(map(str, [*limits, *kernel])) for _, limits, kernel in cases)
    done = subprocess.run([tmp_path / "calculator"], input=text, capture_output=True, text=True, check=True, timeout=60)
    architectures = {gpu: named(gpu) for gpu, _, _ in cases}
    for (gpu, _, kernel), line in zip(cases, done.stdout.splitlines(), strict=True):
        assert line == f"0 {occupancy(architectures[gpu], *kernel).blocks}", (gpu, kernel)


def test_violations_come_with_numbers() -> None:
    a10 = named("A10")
    assert check(a10, 64, 0, 256, 4) == []
    assert check(a10, 64, 0, 256, 5) == [Violation("registers", 5, 4, "blocks on a multiprocessor")]
    both = [Violation("warps", 7, 6, "blocks on a multiprocessor"), Violation("registers", 7, 4, "blocks on a multiprocessor")]
    assert check(a10, 64, 0, 256, 7) == both
    assert check(a10, 300, 200_000, 1056) == [
        Violation("threads", 1056, 1024, "threads a block"),
        Violation("registers", 300, 255, "registers a thread"),
        Violation("registers", 300 * 32 // 256 * 256 * 36 + 256 * 36, 65536, "registers a block"),
        Violation("shared memory", 200_000, 101_376, "bytes a block"),
    ]
    assert check(a10, 72, 0, 1024) == [Violation("registers", 72 * 1024, 65536, "registers a block")]
    assert str(check(a10, 72, 0, 1024)[0]) == "registers: 73728 registers a block are needed, 65536 are there"


@pytest.mark.parametrize("use", [(0, 0, 0, 1), (-1, 0, 1, 1), (0, -1, 1, 1), (0, 0, 1, 0)])
def test_impossible_kernels_are_refused(use: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        check(named("T4"), *use)


def test_occupancy_needs_the_limits() -> None:
    bare, _ = from_driver("NVIDIA X1", (13, 0), {})
    with pytest.raises(Unsupported, match="is not known, and this needs it"):
        occupancy(bare, 32, 0, 128)


def test_paths_have_their_rates_and_the_slowest_edge() -> None:
    found = path(named("H200"), "dram", "registers")
    assert [(s.source, s.target, s.gbs) for s in found.steps] == [
        ("dram", "l2", 4300),
        ("l2", "l1", 9750),
        ("l1", "registers", None),
    ]
    assert found.bottleneck is found.steps[0]
    assert [s.source for s in found.unknown] == ["l1"]
    shared = path(named("H200"), "shared", "registers").steps[0]
    assert shared.gbs == pytest.approx(128 * 132 * 1.98)
    assert [s.target for s in path(named("A100-40GB"), "dram", "shared").steps] == ["l2", "shared"]
    assert [s.target for s in path(named("T4"), "dram", "shared").steps] == ["l2", "l1", "registers", "shared"]
    assert path(named("T4"), "host", "dram").bottleneck is None
    assert path(named("T4"), "l2", "l2").steps == ()
    with pytest.raises(InputError, match="'l3' is no memory"):
        path(named("T4"), "l3", "l2")


def test_a_published_rate_for_each_clock_stands_in_for_a_measured_one() -> None:
    a100 = named("A100-40GB")
    assert rate_of(a100, "l2->l1") is a100.get("l2->l1.rate_per_clock")
    assert path(a100, "l2", "l1").steps[0].gbs == pytest.approx(5120 * 1.41)


def test_bottlenecks() -> None:
    h200 = named("H200")
    load = bottleneck(h200, {"dram": 4.3e9, "fp32": 66.9e9, "fp64": 0, "launch": 3, "atomics": 5, "tensor": 1e9})
    assert load.times_us["dram"] == pytest.approx(1000)
    assert load.times_us["fp32"] == pytest.approx(1000, rel=0.001)
    assert load.times_us["launch"] == pytest.approx(3.81)
    assert load.times_us["tensor"] == pytest.approx(1e9 / (132 * 4096 * 1.83e9) * 1e6)
    assert (load.times_us["fp64"], load.times_us["atomics"]) == (0, None)
    assert (load.largest, load.unknown) == ("dram", ("atomics",))
    assert bottleneck(h200, {"atomics": 1}).largest is None
    assert bottleneck(h200, {}).times_us == {}
    assert bottleneck(named("T4"), {"launch": 2}).unknown == ("launch",)


def test_every_demand_has_a_place_in_every_graph() -> None:
    for name in NAMES:
        for key, (where, _) in DEMANDS.items():
            if key != "launch":
                assert rate_of(named(name), where).source


@pytest.mark.parametrize("demand", [{"drum": 1}, {"dram": -1}, {"dram": float("nan")}])
def test_impossible_demands_are_refused(demand: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"is no resource; did you mean 'dram'|is no amount"):
        bottleneck(named("T4"), demand)


def test_units_that_are_no_rates_are_refused() -> None:
    with pytest.raises(Unsupported, match="3 KiB is no rate"):
        per_second(named("T4"), Quantity(3, "KiB", "measured", "me"), "l2")


def test_differences() -> None:
    found = {d.place: d for d in difference(named("A100-40GB"), named("A100-80GB"))}
    assert found["dram.capacity"].ratio == 2
    assert found["dram->l2.rate"].ratio == pytest.approx(2039 / 1555)
    assert found["launch.graph_period"].ratio is None
    assert "l2.capacity" not in found
    assert difference(named("L4"), named("L4")) == []
    later = {d.place: d for d in difference(named("T4"), named("L4"))}
    assert later["l2->shared.rate"].first is None


# ----------------------------------------------------------------------------------------------------------------- the probe


TINY = Sizes(copied=(4096, 16384), gathered=4096, gathering=64, waiting=8, cut=12, shuffled=16)


@pytest.mark.parametrize("name", [name for name, _ in experiments(TINY)])
def test_experiments_do_the_work_that_they_are_divided_by(name: str) -> None:
    experiment = dict(experiments(TINY))[name]
    compiled, inputs = experiment.compile("sm_90")
    package = compiled.package
    assert check_result(package.computation, inputs, run_simt(package, inputs)).passed
    assert len(package.launches) == 1
    if name.startswith("copy"):
        moved = sum(a.nbytes for a in inputs.arrays.values())
        assert experiment.work == pytest.approx(moved, rel=0.01)
    elif name.startswith("wait"):
        assert experiment.work == np.count_nonzero(np.diff(experiment.matrix.indptr))
        lines = len(np.unique(experiment.matrix.indices // 32))
        assert lines == (TINY.waiting if "apart" in name else 1)
    elif name.startswith("add"):
        rows = next(array for key, array in inputs.arrays.items() if key.endswith("row_segments.rows"))
        assert (rows < 0).all()
        assert experiment.work == len(rows) * max(1, experiment.columns)
        assert "atom" in package.ptx or "red." in package.ptx
    elif name == "shuffle":
        rows = experiment.matrix.shape[0]
        assert experiment.work == rows * 32 * package.ptx.count("shfl.sync")
    elif name == "no shuffle":
        assert "shfl.sync" not in package.ptx


def test_store_has_the_pieces_of_add_and_no_cut_row() -> None:
    made = dict(experiments(TINY))
    _, inputs = made["store"].compile("sm_90")
    rows = next(array for key, array in inputs.arrays.items() if key.endswith("row_segments.rows"))
    assert (rows >= 0).all()
    assert (len(rows), made["store"].matrix.nnz) == (2 * TINY.cut, made["add"].matrix.nnz)


def made_up() -> tuple[dict[str, float], dict[str, int]]:
    times = {
        "launch": 1.5,
        "copy 1 KiB": 2.0,
        "copy 9 KiB": 250.0,
        "gather": 50.0,
        "wait same warm": 1000.0,
        "wait apart warm": 1250.0,
        "wait same cold": 2000.0,
        "wait apart cold": 2700.0,
        "add": 40.0,
        "store": 20.0,
        "add to one": 100.0,
        "shuffle": 10.0,
        "no shuffle": 5.0,
    }
    work = dict.fromkeys(times, 1000) | {
        "copy 9 KiB": 10**9,
        "gather": 3 * 10**8,
        "add": 10**7,
        "add to one": 10**5,
        "shuffle": 10**8,
    }
    return times, work


def test_results_follow_from_times() -> None:
    found = results(*made_up())
    assert found.keys() == MEASURABLE.keys()
    numbers = {place: quantity.number for place, quantity in found.items()}
    assert numbers == {
        "launch.graph_period": pytest.approx(1.5),
        "dram->l2.measured_rate": pytest.approx(4000),  # 1e9 B in 250 us, in GB/s
        "l2->l1.measured_rate": pytest.approx(6000),
        "l2.latency_over_l1": pytest.approx(250),  # 250 us more for 1000 loads, in ns
        "dram.latency_over_l1": pytest.approx(700),
        "atomics.measured_rate": pytest.approx(10**7 / 40e-6),
        "atomics.same_address_rate": pytest.approx(1e9),
        "shuffle.measured_rate": pytest.approx(1e13),
    }
    assert "takes 2.00 times as long as stores" in found["atomics.measured_rate"].source
    assert {quantity.kind for quantity in found.values()} == {"measured"}
    assert all(found[place].unit == unit for place, unit in MEASURABLE.items())


def test_a_difference_that_noise_ate_is_left_out() -> None:
    times, work = made_up()
    assert "l2.latency_over_l1" not in results(times | {"wait apart warm": 990.0}, work)


class Emulated:
    """`CudaSession` by emulation; a run costs a microsecond a thousand threads, on top of one."""

    spoil = 0.0

    def __init__(self, package: Any, sizes: Any, device: int) -> None:
        self.package, self.launches = package, resolve(package, sizes)
        self.arrays: dict[str, Any] = {}
        self.sizes = {**package.sizes, **sizes}

    def __enter__(self) -> Emulated:
        return self

    def __exit__(self, *_: object) -> None:
        self.arrays = {}

    def upload(self, arrays: dict[str, Any]) -> None:
        output = self.package.computation.output.name
        names = {b.name for b in self.package.buffers}
        assert names - set(arrays) <= {output}
        self.arrays = {name: array.copy() for name, array in arrays.items()}
        if output not in arrays:
            shape = tuple(evaluate(extent, self.sizes) for extent in self.package.buffer(output).shape)
            self.arrays[output] = np.full(shape, np.nan, np.float32)

    def launch(self) -> None:
        module = SimtModule(self.package.mlir)
        for launch in self.launches:
            arguments = [self.arrays[a] if isinstance(a, str) else a for a in launch.arguments]
            module.launch(launch.kernel, launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes)

    def download(self, name: str) -> Any:
        return self.arrays[name] + np.float32(self.spoil)

    def time(self, rounds: int, budget_s: float, cold: bool) -> Any:
        cost = sum(1 + np.prod(launch.grid) * launch.threads / 1000 for launch in self.launches)
        return summary([float(cost)] * rounds, 1, "graph", cold)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[Emulated]:
    """An H200 that is made up."""
    monkeypatch.setattr(cuda, "available", lambda: None)
    monkeypatch.setattr(cuda, "versions", lambda device=0: {"gpu": "NVIDIA H200", "compute_capability": "9.0", "driver": "580"})
    monkeypatch.setattr(libcuda, "device_attributes", lambda device: dict(H200))
    monkeypatch.setattr(cuda, "CudaSession", Emulated)
    monkeypatch.setattr(probing.Sizes, "of", staticmethod(lambda l2_bytes: TINY))
    monkeypatch.setattr(Emulated, "spoil", 0.0)
    return Emulated


def test_a_probe_runs_checks_and_times_every_experiment(gpu: type[Emulated]) -> None:
    told: list[str] = []
    measurements = probe(0, told.append)
    assert len(told) == len(dict(experiments(TINY))) == len(measurements.samples)
    assert measurements.values["launch.graph_period"].number == pytest.approx(1.032)
    assert measurements.versions["attributes"] == H200
    assert Measurements.from_json(json.loads(json.dumps(measurements.to_json(), allow_nan=False))) == replace(
        measurements, samples=json.loads(json.dumps(measurements.samples))
    )
    merged = with_measured(named("H200"), measurements)
    period = merged.get("launch.graph_period")
    assert (period.kind, period.alternates[0].value) == ("measured", 1.27)
    assert bottleneck(merged, {"atomics": 1e6, "launch": 2}).unknown == ()
    with pytest.raises(InputError, match="measured on NVIDIA H200, not on A10"):
        with_measured(named("A10"), measurements)


def test_a_probe_with_wrong_results_measures_nothing(gpu: type[Emulated], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "spoil", 1.0)
    with pytest.raises(CheckFailed, match="experiment 'launch': the result is wrong"):
        probe()


def test_sizes_stay_out_of_the_caches_they_are_to_miss() -> None:
    for name in NAMES:
        a = named(name)
        sizes = Sizes.of(int(a.needed("l2.capacity")))
        assert max(sizes.copied) >= 8 * a.needed("l2.capacity")
        assert 4 * a.needed("l1.capacity") < sizes.gathered < a.needed("l2.capacity")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=3), "of schema 3"),
        (lambda d: d.pop("gpu"), "these are no measurements"),
        (lambda d: d["values"].update({"l2.speed": {}}), "'l2.speed' is nothing that is measured"),
        (lambda d: d["values"]["launch.graph_period"].update(unit="s"), "needs a measured number of us, not 1.5 s"),
        (lambda d: d["values"]["launch.graph_period"].update(kind="vendor"), "needs a measured number"),
        (lambda d: d["values"]["launch.graph_period"].update(value=-1), "needs a measured number"),
        (lambda d: d.update(values=[]), "are objects"),
    ],
)
def test_what_are_no_measurements_is_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    data = json.loads(json.dumps(Measurements("H200", {}, results(*made_up())).to_json()))
    change(data)
    with pytest.raises(InputError, match=message):
        Measurements.from_json(data)


# --------------------------------------------------------------------------------------------------------------- the command


def run(*words: str) -> int:
    args = sparseditto_main.parser().parse_args(["arch", *words])
    return run_and_report("sparseditto", lambda: int(args.func(args)))


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(NAMES)
    cells = ["H200 SXM", "sm_90", "132 SMs", "1980 MHz", "141 GB", "4800 GB/s", "60 MiB", "228 KiB", "66.9 TFLOP/s"]
    assert re.split("  +", lines[12])[: len(cells)] == cells
    assert run("list", "--json") == 0
    assert [gpu["name"] for gpu in json.loads(capsys.readouterr().out)] == NAMES


def test_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rtx", "4090") == 0
    plain = capsys.readouterr().out
    assert plain.startswith("RTX 4090\n")
    assert "\n  capacity: 72 MiB\n" in plain
    assert "\n  graph period: ?\n" in plain
    assert "deviceQuery" not in plain
    assert run("rtx 4090", "--sources") == 0
    assert "  clock: 2520 MHz (device: deviceQuery RTX 4090" in capsys.readouterr().out


def test_json_graphml_and_png(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("b200", "--json") == 0
    assert Architecture.from_json(json.loads(capsys.readouterr().out)) == named("B200")
    assert run("b200", "--graphml") == 0
    assert nx.parse_graphml(capsys.readouterr().out).number_of_nodes() == len(NODES)
    assert run("b200", "--png", str(tmp_path / "b200.png")) == 0
    assert (tmp_path / "b200.png").read_bytes().startswith(b"\x89PNG")
    assert run("b200", "--png", str(tmp_path / "nowhere" / "b200.png")) == 2
    assert "cannot write there" in capsys.readouterr().err


def test_a_png_needs_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"PNGs need matplotlib .*: pip install 'sparseditto\[plot\]'"):
        write_png(named("T4"), tmp_path / "t4.png")


def test_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("diff", "H100 SXM", "h200") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["l2.capacity", "50", "MiB", "60", "MiB", "1.20"] in lines
    assert run("diff", "h200", "h200", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"first": "H200 SXM", "second": "H200 SXM", "differences": []}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a100"], "did you mean 'A100-40GB' or 'A100-80GB'?"),
        (["diff", "h200"], "`arch diff` needs two GPUs, not 1"),
        (["diff", "h200", "x"], "'x' is no known GPU"),
        (["list", "h200"], "takes nothing behind it, not 'h200'"),
        (["--png", "x.png"], "--png does nothing here"),
        (["h200", "-o", "x"], "--output does nothing here"),
        (["h200", "--device", "1"], "--device does nothing here"),
        (["h200", "--json", "--sources"], "--sources does nothing here"),
        (["h200", "--measured", "nowhere.json"], "nowhere.json: cannot be read"),
        (["h200", "--measured", __file__], "is not JSON"),
    ],
)
def test_bad_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("word", ["probe", "here"])
def test_without_a_gpu(word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise DeviceError("the CUDA driver finds no GPU")

    monkeypatch.setattr(cuda, "_driver", absent)
    assert run(word) == 2
    assert capsys.readouterr().err == "sparseditto: device: the CUDA driver finds no GPU\n"


def test_here_and_probe(
    gpu: type[Emulated], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libcuda, "device_attributes", lambda device: H200 | {"multiprocessor_count": 120})
    assert run("diff", "h200", "here") == 0
    said = capsys.readouterr()
    assert said.err == "sparseditto: gpu->sm.count is 120 by the driver, 132 in the table\n"
    assert "gpu->sm.count" in said.out
    assert run("probe", "-o", str(tmp_path / "h200.json")) == 0
    capsys.readouterr()
    assert run("h200", "--measured", str(tmp_path / "h200.json")) == 0
    assert "graph period: 1.032 us (measured)" in capsys.readouterr().out
    assert run("a10", "--measured", str(tmp_path / "h200.json")) == 2


def test_attributes_are_those_that_the_driver_is_asked_for() -> None:
    assert ATTRIBUTES.keys() == libcuda._ATTRIBUTES.keys()
