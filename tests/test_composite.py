"""Composite passes: read, held to what plans are held to, expanded where plans name them, and offered by the search."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import both, matmul, matvec, of_lengths

from sparseditto.agent.architecture.building import named
from sparseditto.agent.graph import pass_graph
from sparseditto.agent.planner import Task
from sparseditto.agent.space import Context, Space
from sparseditto.agent.tuner import Answer, Budget, search
from sparseditto.compiler.pipeline import plan_steps
from sparseditto.dialects.binding import context
from sparseditto.dialects.errors import InputError, PlanError
from sparseditto.passes.base import Bottleneck, Form, Kind
from sparseditto.passes.composite import MOST_STEPS, read, register, registered
from sparseditto.passes.pipeline_text import parse_pipeline
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import find, load_file, registry

pytestmark = pytest.mark.usefixtures("passes_forgotten")

Write = Callable[[str], Path]
Json = dict[str, Any]

HEAD = "set-encoding,accumulate-registers"
WIDE: Json = {
    "name": "wide-blocks",
    "doc": "Large blocks, whose threads have registers for many loads.",
    "parameters": {
        "threads": {"default": 512, "choices": [256, 512], "help": "threads of a block"},
        "tail": {"default": "halves", "choices": ["loop", "halves"], "help": "what becomes of iterations left over"},
    },
    "steps": ["unroll{factor=8 tail=$tail}", "map-blocks{threads=$threads}", "bound-launch{blocks=2}"],
}
PARTS: Json = {
    "name": "long-rows-apart",
    "doc": "Long rows by subgroups, the others by threads.",
    "steps": [
        "partition{by=length limit=64}",
        *("rows-to-threads", "map-blocks", "next-part"),
        *("rows-to-subgroups{lanes=32}", "map-blocks{threads=256}"),
    ],
}


def changed(**changes: Any) -> Json:
    return {**WIDE, **changes}


def parameter(**changes: Any) -> Json:
    """`WIDE` with its first parameter changed."""
    return changed(parameters={**WIDE["parameters"], "threads": {**WIDE["parameters"]["threads"], **changes}})


# --- Reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [WIDE, PARTS], ids=lambda d: d["name"])
def test_json_is_read_and_written(data: Json) -> None:
    composite = read(data)
    assert composite.to_json() == {"parameters": {}, **data}
    assert read(json.loads(json.dumps(composite.to_json()))) == composite


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"a composite is an object with doc, name, parameters, steps, not \[\]"),
        ({"name": "x"}, "a composite is an object with"),
        (changed(code="import os"), "a composite is an object with"),
        (changed(name=7), "the name of a composite is text, not 7"),
        (changed(name="Wide_Blocks"), r"composite 'Wide_Blocks': needs a name of words in small letters"),
        (changed(name="w" * 65), f"composite '{'w' * 64}': needs a name"),
        (changed(name="x\x1b[2J"), r"composite 'x\\x1b\[2J': needs a name"),
        (changed(name="cse"), "composite 'cse': the names of upstream's passes"),
        (changed(name="mlir-everything"), "those that begin with 'mlir-', are upstream's"),
        (changed(doc=""), "its doc has to be text of 1 to 2000 characters"),
        (changed(doc="x\x1b[31m"), "its doc has characters that cannot be printed"),
        (changed(doc=None), "its doc has to be text"),
        (changed(steps="unroll"), "its steps are no list of text"),
        (changed(steps=[1]), "its steps are no list of text"),
        (changed(steps=[], parameters={}), "has 0 steps; it may have 1 to 32"),
        (changed(steps=["unroll"] * (MOST_STEPS + 1), parameters={}), "has 33 steps"),
        (changed(steps=["unroll,map-blocks"], parameters={}), r"step 1 \(unroll,map-blocks\): is more than one pass"),
        (changed(steps=["func.func(unroll)"], parameters={}), r"'func.func\(…\)' may not stand in a plan"),
        (changed(steps=["unrol"], parameters={}), r"step 1 \(unrol\): no pass is named 'unrol'; did you mean 'unroll'"),
        (changed(steps=["cse"], parameters={}), "'cse' is upstream's; a plan names it 'mlir-cse'"),
        (changed(steps=["outline-kernels"], parameters={}), "a lowering pass, which the pipeline runs by itself"),
        (changed(steps=["unroll{fctor=2}"], parameters={}), "unroll: no option 'fctor'; did you mean 'factor'"),
        (changed(steps=["unroll{factor=3}"], parameters={}), r"unroll: factor=3 is not one of \(1, 2, 4, 8, 16\)"),
        (changed(steps=["unroll{factor=$f}"], parameters={}), r"factor=\$f: there is no such parameter"),
        (changed(steps=["unroll{factor=1$f}"], parameters={}), r"unroll: factor=1\$f: that is no int"),
        (changed(steps=["map-blocks", "unroll"], parameters={}), "'unroll' is a schedule pass and stands after a mapping pass"),
        (changed(steps=["unroll", "unroll"], parameters={}), "unroll: does not go with the innermost reduction unrolled"),
        (
            changed(steps=["rows-to-threads", "rows-to-subgroups"], parameters={}),
            "needs a parallel loop outside all others, not mapped yet, which an earlier pass took away",
        ),
        (changed(steps=["next-part"], parameters={}), "next-part: needs the matrix in parts"),
        (changed(steps=["partition", "rows-to-threads", "map-blocks"], parameters={}), "1 parts wait for a schedule"),
        (changed(parameters=[]), "its parameters are no object"),
        (changed(steps=WIDE["steps"][1:]), r"no step has the value \$tail"),
        (
            changed(parameters={"threads": WIDE["parameters"]["threads"]}),
            r"tail=\$tail: there is no such parameter; there are threads",
        ),
        (
            changed(parameters={"threads": 5}),
            "parameter 'threads': a parameter is an object with choices, default, help, not 5",
        ),
        (parameter(choices="256"), "parameter 'threads': its choices are no list"),
        (parameter(choices=[]), "needs 1 to 32 choices, each once"),
        (parameter(choices=[512, 512]), "needs 1 to 32 choices, each once"),
        (parameter(choices=[512, "256"]), "all true or false, all whole numbers, or all words"),
        (parameter(choices=[512.0], default=512.0), "all true or false, all whole numbers, or all words"),
        (parameter(choices=[[512]], default=[512]), "all true or false, all whole numbers, or all words"),
        (parameter(choices=["a b"], default="a b"), "a choice that is no word"),
        (parameter(choices=["512},unroll{factor=2"], default="512},unroll{factor=2"), "a choice that is no word"),
        (parameter(default=128), "its default 128 is none of its choices"),
        (parameter(choices=[512, 500]), r"with threads=500: map-blocks: threads=500 is not one of"),
        (parameter(help=""), "its help has to be text"),
        (
            changed(parameters={**WIDE["parameters"], "kind": WIDE["parameters"]["tail"]}),
            "called like something that every pass has",
        ),
        (
            changed(parameters={**WIDE["parameters"], "for": WIDE["parameters"]["tail"]}),
            "called like something that every pass has",
        ),
        (changed(parameters={**WIDE["parameters"], "A": WIDE["parameters"]["tail"]}), "parameter 'A': needs a name"),
    ],
)
def test_what_is_no_composite_is_refused(data: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read(data)


def test_sizes_are_bounded() -> None:
    many = {f"p{k}": {"default": False, "choices": [False, True], "help": "x"} for k in range(9)}
    with pytest.raises(PlanError, match="has 9 parameters; it may have 8"):
        read(changed(parameters=many))
    choices = {f"p{k}": {"default": 0, "choices": list(range(9)), "help": "x"} for k in range(3)}
    with pytest.raises(PlanError, match="more than 512 choices together"):
        read(changed(parameters=choices))


# --- Registering --------------------------------------------------------------------------------------


def test_a_composite_is_a_pass_by_its_name() -> None:
    cls = register(read(WIDE))
    assert find("wide-blocks") is cls
    assert cls.kind is Kind.COMPOSITE
    assert register(read(WIDE)) is cls, "once more changes nothing"
    assert registered() == [read(WIDE)]
    assert str(cls()) == "wide-blocks{threads=512 tail=halves}"
    assert cls.requires == (Form.THREADS,)
    assert set(cls.provides) == {Form.UNROLLED, Form.BLOCKS}
    assert Bottleneck.LATENCY in cls.relieves


def test_names_are_taken_once() -> None:
    register(read(WIDE))
    with pytest.raises(PlanError, match="composite 'wide-blocks': its name is taken by another pass"):
        register(read(changed(doc="Something else.")))
    with pytest.raises(PlanError, match="composite 'unroll': its name is taken by another pass"):
        register(read(changed(name="unroll")))


def test_composites_hold_no_composites() -> None:
    register(read(WIDE))
    with pytest.raises(PlanError, match=r"step 1 \(wide-blocks\): is a composite itself"):
        read(changed(name="wider", steps=["wide-blocks"], parameters={}))


def test_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(WIDE))
    load_file(path)
    assert registered() == [read(WIDE)]
    path.write_text(json.dumps(changed(name="other", steps=["unrol"], parameters={})))
    with pytest.raises(PlanError, match="no pass is named 'unrol'") as caught:
        load_file(path)
    assert str(caught.value).startswith(f"{path}: composite 'other': step 1")
    path.write_text("{")
    with pytest.raises(InputError, match="is no JSON"):
        load_file(path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_file(tmp_path / "none.json")


# --- In plans -----------------------------------------------------------------------------------------


def test_a_plan_holds_the_steps() -> None:
    register(read(WIDE))
    plan = Plan.parse(f"{HEAD},rows-to-threads,wide-blocks{{threads=256}}")
    assert plan == Plan.parse(
        f"{HEAD},rows-to-threads,unroll{{factor=8 tail=halves}},map-blocks{{threads=256}},bound-launch{{blocks=2}}"
    )
    assert plan.digest() == Plan(plan.steps).digest()
    assert "wide-blocks" not in plan.text()
    data = {**plan.to_json(), "steps": [*map(str, plan.steps[:3]), "wide-blocks{threads=256}"]}
    assert Plan.from_json(data) == plan
    with pytest.raises(PlanError, match="wide-blocks: threads=128 is not one of"):
        Plan.parse("wide-blocks{threads=128}")
    with pytest.raises(PlanError, match="unroll: does not go with the innermost reduction unrolled"):
        Plan.parse(f"{HEAD},rows-to-threads,unroll,wide-blocks")


def test_a_pipeline_runs_the_steps() -> None:
    register(read(WIDE))
    with context() as ctx, ctx:
        steps = plan_steps(parse_pipeline("canonicalize,wide-blocks{threads=256},cse"))
    assert [str(step).partition("{")[0] for step in steps] == ["canonicalize", "unroll", "map-blocks", "bound-launch", "cse"]


@pytest.mark.parametrize("data", [WIDE, PARTS], ids=lambda d: d["name"])
@pytest.mark.parametrize(("text", "columns"), [(matvec(), None), (matmul("f64"), 8)], ids=["spmv", "spmm"])
def test_kernels_are_right(data: Json, text: str, columns: int | None, kernel_file: Write) -> None:
    register(read(data))
    rows = "rows-to-threads," if data is WIDE else ""
    both(kernel_file(text), of_lengths([0, 3, 70, 1, 9]), f"{HEAD},{rows}{data['name']}", columns)


# --- In the search ------------------------------------------------------------------------------------


def space(columns: int = 0) -> Space:
    return Space(Context(Task(rows_first=True, choose_format=True, columns=columns, element_bytes=4)))


def plan_of(steps: str) -> Plan:
    return Plan.parse(f"{HEAD},{steps}")


def moves_of(name: str, steps: str) -> dict[str, list[Plan]]:
    """The plans that adding a composite gives, by label."""
    found: dict[str, list[Plan]] = {}
    for move in space().moves(plan_of(steps)):
        if move.subject == f"+{name}":
            found.setdefault(move.label, []).append(move.plan)
    return found


def test_steps_take_the_places_of_their_like() -> None:
    register(read(WIDE))
    found = moves_of("wide-blocks", "rows-to-threads,unroll,map-blocks")
    wide = "rows-to-threads,unroll{factor=8 tail=halves},map-blocks{threads=512},bound-launch{blocks=2}"
    assert found["+wide-blocks{threads=512 tail=halves}"] == [plan_of(wide)]
    assert len(found) == 3, "its defaults, and each other choice of a parameter"
    assert "+wide-blocks{threads=512 tail=halves}" not in moves_of("wide-blocks", wide), "it is there"


def test_steps_that_are_not_there_are_added_together() -> None:
    register(read(changed(steps=["stream-entries", "unroll{factor=2}", "bound-launch{blocks=4}"], parameters={})))
    (found,) = moves_of("wide-blocks", "rows-to-threads,map-blocks").values()
    assert plan_of("stream-entries,unroll{factor=2},rows-to-threads,map-blocks,bound-launch{blocks=4}") in found
    assert plan_of("rows-to-threads,stream-entries,unroll{factor=2},map-blocks,bound-launch{blocks=4}") in found


@pytest.mark.parametrize("columns", [0, 32])
def test_a_composite_of_one_pass_is_added_as_the_pass_is(columns: int) -> None:
    """To a plan that has nothing for the same: where the pass may be added, the composite is too, and nowhere else."""
    context = space(columns).context
    plan, added = plan_of("rows-to-threads,map-blocks"), 0
    forms = {form for step in plan.steps for form in step.provides}
    for name, cls in dict(registry()).items():
        if (
            cls.kind in (Kind.SCHEDULE, Kind.MAPPING)
            and Form.PARTS not in (*cls.requires, *cls.provides)
            and not forms & {*cls.provides}
        ):
            composite = register(read({"name": f"only-{name}", "doc": "One pass.", "steps": [str(cls())]}))
            here = {move.plan for move in Space(context, {composite.name: composite}).moves(plan) if move.label[0] == "+"}
            places = ((*plan.steps[:k], cls(), *plan.steps[k:]) for k in range(len(plan.steps) + 1))
            there = {made for made in map(space(columns).plan, places) if made is not None}
            assert here <= there
            assert bool(here) == bool(there), name
            added += bool(here)
    assert added >= 12


def test_a_composite_may_split_the_matrix() -> None:
    register(read(PARTS))
    (found,) = moves_of("long-rows-apart", "rows-to-subgroups{lanes=4},unroll,map-blocks").values()
    apart = (
        "partition{by=length limit=64},rows-to-threads,unroll,map-blocks,next-part,"
        "rows-to-subgroups{lanes=32},map-blocks{threads=256}"
    )
    assert plan_of(apart) in found


def test_composites_are_in_seeds_and_the_graph() -> None:
    register(read(WIDE))
    wide = set(map(str, find("wide-blocks")().expand()))
    assert any(wide <= set(map(str, plan.steps)) for plan in itertools.islice(space().seeds(), 60))
    assert "pass:wide-blocks" in pass_graph(named("H200 SXM"))


def cost(plan: Plan) -> float:
    """Each step of `WIDE` alone makes a kernel slower; all together make it much faster."""
    wanted = {"unroll{factor=8 tail=halves}", "map-blocks{threads=512}", "bound-launch{blocks=2 registers=0}"}
    there = len(wanted & set(map(str, plan.steps)))
    return 20.0 if there == 3 else 100.0 + 50.0 * there


def found_by_search() -> Plan:
    s = space()

    def measure(requests: Any) -> Iterator[Answer]:
        yield from (Answer(request.plan, "ok", (cost(request.plan),) * request.rounds) for request in requests)

    found = search(list(itertools.islice(s.seeds(), 30)), s.moves, measure, Budget(120))
    return found.ranking()[0].plan


def test_a_registered_composite_wins_a_search() -> None:
    """What the passes alone reach only through worse plans, a composite reaches in one move."""
    assert cost(found_by_search()) == 100.0
    register(read(WIDE))
    assert cost(found_by_search()) == 20.0
