"""The graph of passes and a GPU: made of declarations alone, and walked from what limits a plan to other plans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar
from xml.etree import ElementTree

import networkx as nx
import pytest

from sparseditto.agent.architecture.building import named
from sparseditto.agent.cost import predict
from sparseditto.agent.features import Features
from sparseditto.agent.graph import (
    AT,
    TAKEN_FROM,
    around,
    consuming,
    hardware_of,
    pass_graph,
    relieving,
    to_dot,
    to_graphml,
    to_json,
    walks,
)
from sparseditto.agent.planner import Task
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.cli import main
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.dialects.errors import InputError
from sparseditto.passes import registry as registry_module
from sparseditto.passes.base import Bottleneck, Form, Kind, Resource, SchedulePass, option
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import register, registry
from sparseditto.passes.work import Work

H200 = named("h200")
TASK = Task(True, True, 0, 4, shape=(100_000, 100_000))
SKEWED = Features(
    100_000,
    100_000,
    1_000_000,
    10.0,
    100_000,
    12.0,
    0.0,
    padding=6.0,
    padding_sorted=2.0,
    median_row=4,
    row_q90=15,
    row_q99=90,
    long_rows=0.4,
    used_columns=90_000.0,
    mean_row_span=60_000.0,
    hot_columns=0.3,
    sectors=0.95,
)
THREADS = Plan.parse("set-encoding,accumulate-registers,rows-to-threads,unroll,map-blocks")


@pytest.fixture
def halved() -> Iterator[type[SchedulePass]]:
    """A pass that someone adds: it says that it relieves imbalance, and what it makes of the work."""

    @register
    @dataclass(frozen=True)
    class HalveLongest(SchedulePass):
        """Halve the longest row."""

        name: ClassVar[str] = "halve-longest"
        relieves = (Bottleneck.IMBALANCE,)
        consumes = (Resource.SHUFFLE,)
        requires = (Form.ROWS,)
        factor: int = option("by how much", default=2, choices=(2, 1000))

        def effect(self, work: Work) -> Work:
            return work._replace(longest=work.longest / self.factor)

    yield HalveLongest
    del registry_module._passes["halve-longest"]


def test_every_pass_of_a_plan_has_the_edges_that_it_declares() -> None:
    graph = pass_graph(H200)
    for name, cls in registry().items():
        if cls.kind is Kind.LOWERING:
            assert f"pass:{name}" not in graph
            continue
        said = {(relation, graph.nodes[node]["name"]) for _, node, relation in graph.out_edges(f"pass:{name}", keys=True)}
        assert said == {
            *(("requires", form.name.lower()) for form in cls.requires),
            *(("provides", form.name.lower()) for form in cls.provides),
            *(("removes", form.name.lower()) for form in cls.removes),
            *(("excludes", form.name.lower()) for form in cls.excludes),
            *(("relieves", bottleneck.value) for bottleneck in cls.relieves),
            *(("consumes", resource.value) for resource in cls.consumes),
        }


def test_every_bottleneck_and_resource_is_somewhere_in_every_gpu() -> None:
    assert set(AT) == set(Bottleneck)
    assert set(TAKEN_FROM) == set(Resource)
    graph = pass_graph(named("t4"))
    hardware = {node for node, sort in graph.nodes.data("sort") if sort == "hardware"}
    assert hardware == {f"hardware:{node}" for node in named("t4").graph}
    for word in (*AT, *TAKEN_FROM):
        assert hardware_of(graph, word)
        assert {f"hardware:{place}" for place in hardware_of(graph, word)} <= hardware


def test_a_bottleneck_and_a_resource_lead_to_passes() -> None:
    graph = pass_graph(H200)
    assert set(relieving(graph, Bottleneck.LAUNCH)) == {n for n, c in registry().items() if Bottleneck.LAUNCH in c.relieves}
    assert "stage-entries" in consuming(graph, Resource.SHARED)
    assert hardware_of(graph, Bottleneck.BANDWIDTH) == ("dram", "l2")


def test_the_graph_is_not_changed_by_accident() -> None:
    with pytest.raises(nx.NetworkXError):
        pass_graph(H200).add_node("more")


def test_a_registered_pass_is_there_by_itself_and_is_reached_from_what_it_relieves(halved: type[SchedulePass]) -> None:
    graph = pass_graph(H200)
    assert "halve-longest" in relieving(graph, Bottleneck.IMBALANCE)
    cost = predict(THREADS, TASK, SKEWED, H200)
    assert cost.bottleneck is Bottleneck.IMBALANCE
    found = walks(graph, THREADS, Space(Context(TASK, SKEWED)), H200)
    mine = [walk for walk in found if "halve-longest" in walk.passes]
    assert {step.factor for walk in mine for step in walk.move.plan.steps if isinstance(step, halved)} == {2, 1000}
    assert mine[0].hardware == ("sm",)
    assert "halve-longest{factor=1000}" in mine[0].move.plan.text()
    assert mine[0].cost.total_us < cost.total_us / 10


def test_walks_are_legal_plans_that_relieve_the_bottleneck_the_cheapest_first() -> None:
    found = walks(pass_graph(H200), THREADS, Space(Context(TASK, SKEWED)), H200)
    assert found
    assert {walk.bottleneck for walk in found} == {Bottleneck.IMBALANCE}
    for walk in found:
        assert Plan.parse(walk.move.plan.text()).steps == walk.move.plan.steps
        assert all(Bottleneck.IMBALANCE in registry()[name].relieves for name in walk.passes)
    runnable = [walk.cost.total_us for walk in found if not walk.refused]
    assert runnable == sorted(runnable)
    assert runnable[0] < predict(THREADS, TASK, SKEWED, H200).total_us


def test_a_walk_that_the_gpu_cannot_run_says_why_and_comes_last() -> None:
    tight = H200.with_values({"sm.max_threads_per_block": H200.get("sm.warp_size")})  # 32 threads a block
    found = walks(pass_graph(tight), THREADS, Space(Context(TASK, SKEWED)), tight)
    assert [bool(walk.refused) for walk in found] == sorted(bool(walk.refused) for walk in found)
    assert any("threads a block are needed, 32 are there" in str(v) for walk in found for v in walk.refused)


# --- Forms of it ------------------------------------------------------------------------------------------


def test_what_is_exported_is_the_graph() -> None:
    graph = pass_graph(H200)
    data = json.loads(json.dumps(to_json(graph)))
    assert set(data["nodes"]) == set(graph)
    assert {(e["source"], e["target"], e["relation"]) for e in data["edges"]} == set(graph.edges(keys=True))
    read = nx.parse_graphml(to_graphml(graph), force_multigraph=True)
    assert set(read) == set(graph)
    assert read.number_of_edges() == graph.number_of_edges()
    assert to_dot(graph).count(" -> ") == graph.number_of_edges()


def test_around_a_pass_is_what_it_declares_and_where_that_is() -> None:
    found = around(pass_graph(H200), "unroll")
    assert set(found.successors("pass:unroll")) > {"bottleneck:latency", "form:unrolled", "resource:registers"}
    assert found.has_edge("bottleneck:latency", "hardware:dram", key="limits")
    assert [node for node in found if node.startswith("pass:")] == ["pass:unroll"]
    with pytest.raises(InputError, match="did you mean 'unroll'"):
        around(pass_graph(H200), "unrol")


def command(*words: str) -> int:
    args = main.parser().parse_args(["passes", *words])
    return run_and_report("sparseditto", lambda: int(args.func(args)))


def test_the_command_prints_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--graph") == 0
    text = capsys.readouterr().out
    assert text.startswith("H200 SXM\n")
    assert "bottleneck imbalance\n  at sm\n  relieved by bin-rows" in text
    assert command("--graph", "unroll", "--gpu", "t4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "T4"
    assert command("--graph", "--graphml") == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("graphml")
    assert command("--graph", "--dot") == 0
    assert capsys.readouterr().out.startswith('digraph "H200 SXM" {')


@pytest.mark.parametrize("word", ["--dot", "--graphml", "--gpu=t4"])
def test_what_only_a_graph_has_is_refused_without_it(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(word) == 2
    assert "is for --graph" in capsys.readouterr().err
