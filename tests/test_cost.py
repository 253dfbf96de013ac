"""The cost model: what more work costs, what the parts of a plan change, every GPU, and what the measurements say of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import from_driver, named
from sparseditto.agent.architecture.table import known
from sparseditto.agent.cost import LIMITS, Cost, Model, check_plan, predict, rank, violations
from sparseditto.agent.cost.model import Constants, calibrated, calibration, start, total, works
from sparseditto.agent.cost.rates import Rates
from sparseditto.agent.cost.reuse import misses
from sparseditto.agent.features import Features
from sparseditto.agent.planner import Task, ranked
from sparseditto.agent.space import Context, Space
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError
from sparseditto.passes.base import Bottleneck
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry
from sparseditto.passes.work import Work, share_beyond

H200 = named("h200")
HEAD = "set-encoding,accumulate-registers"
THREADS = f"{HEAD},rows-to-threads,unroll,map-blocks"
LANES = f"{HEAD},rows-to-subgroups{{lanes=8 share=entries}},unroll,map-blocks"
WIDE = f"{HEAD},vectorize{{width=8}},jam-columns{{factor=8}},rows-to-threads,unroll{{factor=16}}"
REPORT = Path(__file__).parents[1] / "benchmarks" / "results" / "cost-model-h200.json"


def uniform(rows: int = 1_000_000, mean: int = 16, **more: Any) -> Features:
    """Columns anywhere, rows alike."""
    values = {
        "padding": 1.2,
        "padding_sorted": 1.02,
        "median_row": mean,
        "row_q90": mean + 4,
        "row_q99": mean + 8,
        "min_row": 1,
        "long_rows": 0.02,
        "used_columns": float(rows),
        "column_reuse": float(mean),
        "mean_row_span": 0.9 * rows,
        "hot_columns": 0.02,
        "sectors": 1.0,
    }
    return Features(rows, rows, rows * mean, float(mean), 2 * mean, 0.25, 0.0, **{**values, **more})


def skewed(rows: int = 250_000, mean: int = 16) -> Features:
    """As `uniform`, with a few rows that are far longer."""
    return replace(
        uniform(rows, mean),
        max_row=rows // 4,
        variation=10.0,
        padding=8.0,
        padding_sorted=2.0,
        long_rows=0.4,
        row_q99=20 * mean,
    )


def banded(rows: int = 1_000_000, mean: int = 15) -> Features:
    """A band of full diagonals."""
    near = {"mean_row_span": float(mean), "row_overlap": (mean - 1) / mean, "sectors": 0.2, "adjacent": 1.0}
    band = {"padding": 1.0, "span": mean + 31, "diagonals": mean, "diagonal_padding": 1.0, "ell_padding": 1.0, "row_span": mean}
    return uniform(rows, mean, **near, **band)


SYNTHETIC: dict[str, Callable[[], Features]] = {
    "uniform": uniform,
    "skewed": skewed,
    "banded": banded,
    "tiny": lambda: uniform(3, 1),
    "one long row": lambda: replace(uniform(1, 1000), max_row=1000, columns=1000, used_columns=1000.0),
    "no entries": lambda: Features(1000, 1000, 0, 0.0, 0, 0.0, 1.0),
    "nothing": lambda: Features(0, 0, 0, 0.0, 0, 0.0, 0.0),
    "mostly empty": lambda: replace(uniform(1_000_000, 2), empty_rows=0.9, entries=200_000, mean_row=0.2, max_row=4),
    "blocks": lambda: banded().__class__(**{**banded().to_json(), "fill_2": 1.0, "fill_4": 0.9, "fill_8": 0.8, "fill_3": 0.9}),
}


def task(f: Features, k: int = 0) -> Task:
    return Task(True, True, k, 4, shape=(f.rows, f.columns))


def cost(plan: str, f: Features, k: int = 0, gpu: Architecture = H200) -> Cost:
    return predict(Plan.parse(plan), task(f, k), f, gpu)


# --- More costs more --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [THREADS, LANES])
def test_more_entries_cost_more(plan: str) -> None:
    times = [cost(plan, uniform(rows)).total_us for rows in (1000, 10_000, 100_000, 1_000_000, 10_000_000)]
    assert times == sorted(times)
    assert times[-1] > 50 * times[0]


def test_wider_values_and_more_columns_cost_more() -> None:
    f, plan = uniform(), Plan.parse(f"{HEAD},rows-to-subgroups{{lanes=32 share=columns}},unroll,map-blocks")
    four, eight = (predict(plan, replace(task(f, 32), element_bytes=size), f, H200) for size in (4, 8))
    assert eight.times_us["l2"] > 1.5 * four.times_us["l2"]
    assert eight.total_us > four.total_us
    times = [predict(plan, task(f, k), f, H200).total_us for k in (8, 32, 128, 256)]
    assert times == sorted(times)


def test_fewer_bytes_a_coordinate_cost_less_memory() -> None:
    narrow, wide = (cost(THREADS.replace("set-encoding", f"set-encoding{{coordinates={bits}}}"), banded()) for bits in (16, 32))
    assert narrow.times_us["dram"] < wide.times_us["dram"]
    entries, rates = banded().entries, Rates.of(H200)
    assert wide.times_us["dram"] - narrow.times_us["dram"] == pytest.approx(2 * entries * calibrated().dram / rates.dram)


def test_bytes_of_a_stream_are_those_that_must_move() -> None:
    f = banded(4_000_000)
    moved = f.entries * 8 + f.rows * 4 + f.rows * 4 + f.used_columns * 4
    assert cost(THREADS, f).times_us["dram"] == pytest.approx(moved * calibrated().dram / Rates.of(H200).dram, rel=0.01)


def test_a_matrix_that_l2_holds_needs_no_dram() -> None:
    assert cost(THREADS, banded(10_000)).times_us["dram"] == 0


# --- What plans change ------------------------------------------------------------------------------------


def test_launches_are_counted() -> None:
    f = skewed()
    one, two = cost(THREADS, f), cost(f"{HEAD},segment-rows{{length=64}},rows-to-threads,map-blocks", f)
    each = calibrated().launch * H200.needed("launch.graph_period")
    assert one.times_us["launch"] == pytest.approx(each)
    assert two.times_us["launch"] == pytest.approx(2 * each)
    atomic = cost(f"{HEAD},split-entries{{length=256 items=4 lanes=32 share=entries mode=atomic tiles=1}},map-blocks", f)
    assert atomic.times_us["launch"] == pytest.approx(2 * each)


def test_skew_makes_rows_to_threads_slower_than_parts_of_the_entries() -> None:
    split = f"{HEAD},split-entries{{length=256 items=4 lanes=32 share=entries mode=atomic tiles=1}},map-blocks"
    assert cost(THREADS, skewed()).total_us > 10 * cost(split, skewed()).total_us
    assert cost(THREADS, skewed()).bottleneck is Bottleneck.IMBALANCE
    assert cost(THREADS, banded()).total_us < cost(split, banded()).total_us


def test_neighbours_that_differ_make_warps_wait() -> None:
    even, uneven = (cost(THREADS, uniform(padding=padding)).times_us["divergence"] for padding in (1.0, 3.0))
    assert even == 0 < uneven
    sliced = f"{HEAD},slice-rows{{height=32}},rows-to-threads,unroll,map-blocks"
    assert cost(sliced, uniform(padding=3.0)).times_us["divergence"] == 0


def test_lanes_shorten_the_longest_row_and_registers_hide_its_loads() -> None:
    f = skewed()
    assert cost(LANES, f).times_us["imbalance"] < cost(THREADS, f).times_us["imbalance"] / 4
    head = (
        f"{HEAD},vectorize{{width=4}},rows-to-subgroups{{lanes=8 share=columns}},unroll{{factor=8}},map-blocks{{threads=256}}"
    )
    tight, roomy = (cost(f"{head}{bound}", f, 32) for bound in ("", ",bound-launch{blocks=4}"))
    assert roomy.times_us["imbalance"] < tight.times_us["imbalance"]


def test_a_pass_without_an_effect_changes_nothing() -> None:
    f = uniform()
    with_it = THREADS.replace("rows-to-threads", "stream-entries,rows-to-threads")
    assert cost(with_it, f) == cost(THREADS, f)


def test_parts_are_added_up() -> None:
    f = skewed()
    plan = Plan.parse(
        f"{HEAD},partition{{by=length limit=64}},rows-to-threads,map-blocks,next-part,"
        "rows-to-subgroups{lanes=32 share=entries},map-blocks"
    )
    first, second = works(plan, task(f), f)
    assert (first.lanes, second.lanes) == (1, 32)
    assert first.entries + second.entries == pytest.approx(f.entries)
    assert first.longest <= 64 < second.longest
    assert predict(plan, task(f), f, H200).times_us["launch"] == pytest.approx(2 * cost(THREADS, f).times_us["launch"])


@pytest.mark.parametrize("name", [n for n, c in registry().items() if c.kind.value != "lowering"])
def test_the_effect_of_every_pass_leaves_work_that_is_finite(name: str) -> None:
    cls = registry()[name]
    for f in (make() for make in SYNTHETIC.values()):
        before = start(task(f, 32), f)
        for field in dataclasses.fields(cls):
            for choice in field.metadata["choices"] or (field.default,):
                try:
                    after = cls(**{field.name: choice}).effect(before)
                except PlanError:
                    continue  # the pass refuses it beside the defaults of its other options
                assert isinstance(after, Work)
                assert all(math.isfinite(v) and v >= 0 for v in after if isinstance(v, (int, float)))


def test_blocks_hold_entries_by_their_fill() -> None:
    f = SYNTHETIC["blocks"]()
    blocked = start(task(f), f).in_blocks(4, 4)
    assert blocked.entries == pytest.approx(f.entries / 16 / 0.9)
    assert blocked.rows == f.rows / 4


def test_the_share_in_long_rows_falls_with_what_counts_as_long() -> None:
    f = skewed()
    shares = [share_beyond(f, length) for length in (1, 8, 64, 512, 4096, f.max_row)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (1.0, 0.0)


# --- Caches -----------------------------------------------------------------------------------------------


def test_a_cache_takes_in_what_is_used_once_and_no_more_than_is_read() -> None:
    f = uniform()
    sizes = [1e3, 1e5, 1e6, 4e6, 1e7, 1e9]
    taken = [misses(f, 32, f.row_overlap, size) for size in sizes]
    assert taken == sorted(taken, reverse=True)
    assert taken[0] <= 32 * f.entries
    assert taken[-1] == 32 * f.used_columns


def test_neighbours_that_share_columns_hit_a_small_cache() -> None:
    near, far = banded(), uniform(mean=15)
    assert misses(near, 128, near.row_overlap, 192e3) < misses(far, 128, far.row_overlap, 192e3) / 5


# --- Every GPU --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", known())
def test_all_that_the_planner_suggests_has_a_finite_cost_everywhere(gpu: str) -> None:
    architecture = named(gpu)
    for f in (make() for make in SYNTHETIC.values()):
        for k in (0, 8, 143, 256):
            for _, found in rank(ranked(task(f, k), f, architecture.target()), task(f, k), f, architecture):
                assert set(found.times_us) == set(LIMITS)
                assert all(math.isfinite(us) and us >= 0 for us in found.times_us.values())
                assert found.times_us[found.limit] <= found.total_us < math.inf
                assert found.total_us <= sum(found.times_us.values()) + 1e-9


def test_more_bandwidth_costs_less_and_what_is_assumed_is_said() -> None:
    f = uniform(8_000_000)
    t4, a100, h200, b200 = (cost(LANES, f, gpu=named(name)) for name in ("t4", "a100-80gb", "h200", "b200"))
    assert t4.total_us > a100.total_us > h200.total_us > b200.total_us
    assert h200.assumed == ()
    assert set(t4.assumed) == {"launch.graph_period", "l2->l1.rate", "l1.latency", "l2.latency", "dram.latency"}


def test_a_gpu_that_only_a_driver_describes_is_predicted_too() -> None:
    attributes = {
        "multiprocessor_count": 40,
        "clock_rate": 1_500_000,
        "memory_clock_rate": 5_000_000,
        "global_memory_bus_width": 256,
        "l2_cache_size": 4 << 20,
    }
    gpu, _ = from_driver("some card", (7, 5), attributes)
    found = cost(LANES, uniform(), gpu=gpu)
    assert found.gpu == "some card"
    assert "l2->l1.rate" in found.assumed
    assert found.total_us > cost(LANES, uniform()).total_us


# --- Order, constants, refusals ---------------------------------------------------------------------------


def test_rank_puts_the_cheapest_first() -> None:
    f = skewed()
    plans = ranked(task(f), f, H200.target())
    found = rank(plans, task(f), f, H200)
    assert {plan for plan, _ in found} == set(plans)
    times = [c.total_us for _, c in found]
    assert times == sorted(times)


def test_the_total_is_between_the_longest_time_and_the_sum() -> None:
    times = {**dict.fromkeys(LIMITS, 0.0), "launch": 2.0, "dram": 30.0, "issue": 10.0, "divergence": 20.0}
    for power in (1.0, 2.0, 8.0):
        found = total(times, replace(Constants(), power=power))
        assert 2 + 30 < found <= 2 + 60
    assert total(times, replace(Constants(), power=1.0)) == pytest.approx(62)


def test_costs_round_trip_as_json() -> None:
    found = cost(LANES, uniform())
    data = json.loads(json.dumps(found.to_json()))
    assert data["total_us"] == found.total_us
    assert data["bottleneck"] == found.bottleneck.value


def test_the_constants_are_those_that_were_measured_and_reported() -> None:
    assert dataclasses.asdict(calibrated()) == calibration()["constants"] == json.loads(REPORT.read_text())["constants"]
    assert calibration()["gpu"] == "H200 SXM"
    for wrong in ({}, {"launch": 1.0}, {**dataclasses.asdict(calibrated()), "dram": -1.0}, 3):
        with pytest.raises(InputError, match="each above 0"):
            Constants.from_json(wrong)


def test_the_report_says_that_the_model_is_worth_its_aim() -> None:
    unseen = json.loads(REPORT.read_text())["held_out"]["all"]
    assert unseen["spearman"] > 0.5
    assert unseen["error"] < 1.5


def test_a_cost_needs_a_matrix_and_columns() -> None:
    f = uniform()
    with pytest.raises(InputError, match="dense columns is not known"):
        Model.of(replace(task(f), columns=None), f, H200)
    with pytest.raises(InputError, match="no matrix is known"):
        Model.of(task(f), None, H200)


@pytest.mark.parametrize(
    ("plan", "gpu", "numbers"),
    [
        (f"{HEAD},stage-entries{{entries=4096 threads=512 stage=entries}}", "t4", None),
        (f"{HEAD},rows-to-threads,map-blocks{{threads=1024}},bound-launch{{blocks=4}}", "h200", "4 blocks"),
        (f"{WIDE},map-blocks{{threads=1024}},bound-launch{{registers=96}}", "h200", "98304 registers a block"),
        (f"{HEAD},rows-to-threads,map-blocks{{threads=1024}},bound-launch{{registers=96}}", "h200", None),
        (f"{WIDE},map-blocks{{threads=1024}}", "h200", None),
    ],
)
def test_what_a_gpu_cannot_run_is_refused_with_numbers(plan: str, gpu: str, numbers: str | None) -> None:
    f, architecture = uniform(), named(gpu)
    found = violations(Plan.parse(plan), task(f), f, architecture)
    if numbers is None:
        assert found == []
        check_plan(Plan.parse(plan), task(f), f, architecture)
        return
    assert any(numbers in str(v) for v in found)
    with pytest.raises(NotApplicable, match=numbers):
        check_plan(Plan.parse(plan), task(f), f, architecture)


def test_shared_memory_follows_from_options() -> None:
    f = uniform()
    doubled = replace(task(f), element_bytes=16)  # 4096 products of 16 bytes: 64 KiB, all that a T4 has
    plan = Plan.parse(f"{HEAD},stage-entries{{entries=4096 threads=512 stage=entries}}")
    assert [v.resource for v in violations(plan, doubled, f, named("t4"))] == ["shared memory"]
    assert violations(plan, doubled, f, H200) == []


def test_what_the_planner_suggests_fits_the_gpu_that_it_is_for() -> None:
    f = skewed()
    for gpu in ("h200", "a100-80gb", "v100"):
        for k in (0, 32, 256):
            for plan in ranked(task(f, k), f, named(gpu).target()):
                assert violations(plan, task(f, k), f, named(gpu)) == []


@pytest.mark.parametrize("name", SYNTHETIC)
def test_no_plan_that_a_search_may_reach_costs_less_than_nothing(name: str) -> None:
    f = SYNTHETIC[name]()
    space = Space(Context(task(f, 8), f))
    model = Model.of(task(f, 8), f, H200)
    blocks = Plan.parse(
        "set-encoding{format=bsr coordinates=16},accumulate-registers,narrow-coordinates{bits=8},pack-blocks,jam-block-rows,"
        "rows-to-subgroups{lanes=4 share=columns},map-blocks"
    )
    starts = [blocks, *islice(space.seeds(), 0, 30, 15)]
    for plan in {p.digest(): p for first in starts for p in (first, *space.neighbours(first))}.values():
        found = model.predict(plan)
        assert all(0 <= us < math.inf for us in (found.total_us, *found.times_us.values())), plan.text()
