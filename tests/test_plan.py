"""Plans: the text and the JSON form, digests, what is refused before any IR is touched, plug-ins, and the planner's choices."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul, matvec, transposed_matvec
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseditto.agent.features import Features, analyse, transposed
from sparseditto.agent.planner import Task, default_plan, ranked
from sparseditto.compiler.api import compile_file, read_plan, run
from sparseditto.dialects.errors import InputError, PlanError
from sparseditto.dialects.target import Target
from sparseditto.passes import registry as registry_module
from sparseditto.passes.base import Form, Kind, Pass
from sparseditto.passes.pipeline_text import Item, parse_options, parse_pipeline, print_pipeline
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import find, load_file, registry

Write = Callable[[str], Path]

GOOD = "set-encoding,accumulate-registers,rows-to-threads,map-blocks"


def domain(field: Any) -> st.SearchStrategy[Any]:
    choices = field.metadata["choices"]
    assert choices, f"{field.name} has no finite domain; say here what it may be"
    return st.sampled_from(choices)


@st.composite
def passes_of(draw: st.DrawFn, name: str) -> Pass:
    cls = find(name)
    return cls(**{f.name: draw(domain(f)) for f in dataclasses.fields(cls)})


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A legal plan: an encoding, registers, perhaps vectors and unrolling, rows to threads or lanes, blocks."""
    names = ["set-encoding", "accumulate-registers"]
    names += draw(st.sampled_from([[], ["vectorize"]])) + draw(st.sampled_from([[], ["unroll"]]))
    names += [draw(st.sampled_from(["rows-to-threads", "rows-to-subgroups"])), "map-blocks"]
    kernel = draw(st.text(alphabet="0123456789abcdef", max_size=12))
    return Plan(tuple(draw(passes_of(name)) for name in names), kernel)


# --- Text, JSON, digest -------------------------------------------------------------------------------


@given(plans())
def test_text_round_trips(plan: Plan) -> None:
    again = Plan.parse(plan.text(), plan.kernel)
    assert again == plan
    assert again.text() == plan.text()


@given(plans())
def test_json_round_trips(plan: Plan) -> None:
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert again.digest() == plan.digest()


@given(plans(), plans())
def test_digests_tell_plans_apart(one: Plan, other: Plan) -> None:
    assert (one.digest() == other.digest()) == (one == other)


def test_defaults_are_spelled_out() -> None:
    assert Plan.parse(GOOD).text() == (
        "set-encoding{format=csr positions=32 coordinates=32 block-rows=4 block-columns=4},"
        "accumulate-registers,rows-to-threads,map-blocks{threads=128}"
    )


def test_equal_choices_share_a_digest() -> None:
    spelled = "set-encoding{ coordinates=32  format=csr },accumulate-registers, rows-to-threads ,map-blocks{threads=128}"
    assert Plan.parse(spelled).digest() == Plan.parse(GOOD).digest()
    assert Plan.parse(GOOD, "abc").digest() != Plan.parse(GOOD).digest()


def test_digest_does_not_change_between_releases() -> None:
    # Digests key caches and logs: when this one changes, old plans have lost their names.
    digest = Plan.parse(GOOD).digest()
    assert len(digest) == 12
    assert digest == "5c6c52df7131"


def test_the_empty_plan_has_no_steps() -> None:
    assert Plan.parse("").steps == Plan.parse("  ").steps == ()
    assert Plan.parse("").text() == ""


def test_plans_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Plan.parse(GOOD).kernel = "other"  # type: ignore[misc]
    assert len({Plan.parse(GOOD), Plan.parse(GOOD)}) == 1


@pytest.mark.parametrize("name", sorted(registry()))
def test_every_pass_spells_itself(name: str) -> None:
    cls = find(name)
    made = cls()
    (item,) = parse_pipeline(str(made))
    assert item.name == name
    assert cls.make(parse_options(name, item.options)) == made
    assert set(made.options()) == {f.name.replace("_", "-") for f in dataclasses.fields(cls)}


@pytest.mark.parametrize("name", sorted(registry()))
def test_every_pass_declares_itself(name: str) -> None:
    cls = find(name)
    assert isinstance(cls.kind, Kind)
    assert cls.__module__.endswith(name.replace("-", "_")), "one pass, one file, one name"
    assert (cls.__doc__ or "").strip()
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    for f in dataclasses.fields(cls):
        assert f.metadata["help"]
        assert f.metadata["choices"] is None or f.default in f.metadata["choices"]
    if cls.kind is not Kind.LOWERING:
        assert cls.relieves, "the planner finds a pass by what it relieves"


def test_what_a_pass_requires_something_provides() -> None:
    provided = {form for cls in registry().values() for form in cls.provides} | {Form.ROWS, Form.COLUMNS}
    for cls in registry().values():
        assert set(cls.requires) <= provided, cls.name


# --- Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("set-encodng", "no pass is named 'set-encodng'; did you mean 'set-encoding'"),
        ("canonicalize", "'canonicalize' is upstream's"),
        ("xyzzy", "no pass is named 'xyzzy'$"),
        ("set-encoding{fromat=csr}", "no option 'fromat'; did you mean 'format'"),
        ("set-encoding{format=coo}", "format=coo is not one of"),
        ("set-encoding{positions=8}", "positions=8 is not one of"),
        ("set-encoding{positions=wide}", "positions=wide: that is no int"),
        ("set-encoding{positions=32.0}", "that is no int"),
        ("set-encoding{format=csr format=csc}", "option 'format' is given twice"),
        ("set-encoding{format}", "'format' is no option; write name=value"),
        ("set-encoding{=csr}", "'=csr' is no option"),
        ("accumulate-registers{x=1}", "no option 'x'; it has none"),
        ("set-encoding{format=csr", "this '{' is not closed"),
        ("set-encoding}", "unexpected '}'"),
        ("set-encoding,,map-blocks", "a pass name is missing"),
        (",set-encoding", "a pass name is missing"),
        ("set-encoding,", "a pass name is missing"),
        ("func.func(set-encoding)", r"'func.func\(…\)' may not stand in a plan"),
        ("func.func(set-encoding", r"'\)' is missing"),
        ("prepare-nest", "'prepare-nest' is a lowering pass, which the pipeline runs by itself"),
        ("accumulate-registers,set-encoding", "'set-encoding' is a representation pass and stands after a schedule pass"),
        (
            "set-encoding,accumulate-registers,rows-to-threads,map-blocks,unroll",
            "'unroll' is a schedule pass and stands after a mapping pass",
        ),
    ],
)
def test_refused_texts(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.parse(text)


def test_places_are_marked_with_a_caret() -> None:
    with pytest.raises(PlanError) as caught:
        Plan.parse("set-encoding,,map-blocks")
    _, text, caret = caught.value.message.split("\n")
    assert text[caret.index("^")] == ","


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 0}, "of schema 0; this release reads 1"),
        ({"schema": 2}, "of schema 2"),
        ({"schema": "1"}, "of schema 1"),
        ({"schema": None}, "schema"),
        ({"steps": "set-encoding"}, "no list of text"),
        ({"steps": [1]}, "no list of text"),
        ({"steps": [["set-encoding"]]}, "no list of text"),
        ({"steps": ["bad-pass"]}, "no pass is named 'bad-pass'"),
        ({"target": "sm_90"}, "no plan"),
    ],
)
def test_refused_json(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.from_json({**Plan.parse(GOOD).to_json(), **change})


@pytest.mark.parametrize("key", ["schema", "kernel", "steps"])
def test_a_key_that_lacks_is_refused(key: str) -> None:
    data = Plan.parse(GOOD).to_json()
    del data[key]
    with pytest.raises(PlanError, match="no plan"):
        Plan.from_json(data)


@pytest.mark.parametrize("data", [None, [], "set-encoding", 1, {}])
def test_json_that_is_no_plan(data: Any) -> None:
    with pytest.raises(PlanError, match="no plan"):
        Plan.from_json(data)


def test_an_empty_list_of_steps_is_a_plan() -> None:
    assert Plan.from_json({"schema": 1, "kernel": "", "steps": []}).steps == ()


def test_one_step_is_one_pass() -> None:
    with pytest.raises(PlanError):
        Plan.from_json({"schema": 1, "kernel": "", "steps": ["set-encoding", ""]})


# --- Pipelines as text --------------------------------------------------------------------------------

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
OPTIONS = st.lists(st.tuples(NAMES, st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True)), max_size=3).map(
    lambda pairs: " ".join(f"{k}={v}" for k, v in pairs)
)
ITEMS = st.recursive(
    st.builds(Item, NAMES, OPTIONS),
    lambda inner: st.builds(
        lambda name, nested: Item(name, nested=tuple(nested)), NAMES, st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(ITEMS, min_size=1, max_size=5).map(tuple))
def test_pipelines_round_trip(items: tuple[Item, ...]) -> None:
    assert parse_pipeline(print_pipeline(items)) == items


def test_options_may_hold_braces_and_commas() -> None:
    (item,) = parse_pipeline("a{x={1,2} y=(3,4)}")
    assert item == Item("a", "x={1,2} y=(3,4)")


# --- Files and other kernels --------------------------------------------------------------------------


def test_a_plan_is_read_from_text_a_file_or_a_package(kernel_file: Write, staircase: sp.csr_array, tmp_path: Path) -> None:
    compiled = compile_file(kernel_file(matvec()), {"A": staircase})
    (tmp_path / "plan.json").write_text(json.dumps(compiled.plan.to_json()))
    compiled.package.save(tmp_path / "p.ditto")
    assert read_plan(str(tmp_path / "plan.json")) == read_plan(str(tmp_path / "p.ditto")) == compiled.plan
    assert read_plan(compiled.plan.text()).steps == compiled.plan.steps
    again = compile_file(kernel_file(matvec()), {"A": staircase}, plan=str(tmp_path / "p.ditto"))
    assert again.package.ptx == compiled.package.ptx


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, InputError, "cannot be read"),
        ("{", PlanError, "is not JSON"),
        ("[]", PlanError, "no plan"),
        ('{"plan": 1}', PlanError, "no plan"),
    ],
)
def test_files_that_are_no_plan(content: str | None, error: type[Exception], message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error, match=message):
        read_plan(str(path))


def test_a_folder_that_is_no_package_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_plan(str(tmp_path))


def test_a_plan_for_another_kernel_is_refused(kernel_file: Write, staircase: sp.csr_array, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(compile_file(kernel_file(matvec()), {"A": staircase}).plan.to_json()))
    for other in (matvec("f64"), matvec(fill=0.0), matmul(), transposed_matvec()):
        with pytest.raises(PlanError, match=r"the plan is for kernel [0-9a-f]{12}, this one is [0-9a-f]{12}"):
            compile_file(kernel_file(other), {"A": staircase}, plan=str(plan))


def test_a_plan_is_for_its_kernel_whatever_names_and_sizes_are(kernel_file: Write, staircase: sp.csr_array) -> None:
    renamed = matvec().replace("%A", "%M").replace("@spmv", "@other")
    static = matvec().replace("tensor<?xf32>", "tensor<67xf32>").replace("tensor<?x?xf32>", "tensor<67x67xf32>")
    found = [
        compile_file(kernel_file(matvec()), {"A": staircase}).plan.kernel,
        compile_file(kernel_file(renamed), {"M": staircase}).plan.kernel,
        compile_file(kernel_file(static), {"A": staircase[:67]}).plan.kernel,
    ]
    assert len(set(found)) == 1


# --- Plug-ins -----------------------------------------------------------------------------------------

PLUGIN = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparseditto.passes.base import Bottleneck, Form, SchedulePass, option
from sparseditto.passes.registry import register

RUNS = []

@register
@dataclass(frozen=True)
class Nothing(SchedulePass):
    """Look at the nest and leave it as it is."""

    name: ClassVar[str] = "NAME"
    relieves = (Bottleneck.ISSUE,)
    requires = (Form.ROWS,)

    often: int = option("how often to look", default=1, choices=(1, 2, 3))
    loud: bool = option("whether to say so", default=False)

    def run(self, nest, target):
        RUNS.append((self.often, self.loud, len(nest.loops)))
'''


def plugin(folder: Path, text: str = PLUGIN, name: str = "look-twice") -> Path:
    path = folder / f"{name.replace('-', '_')}.py"
    path.write_text(text.replace("NAME", name))
    return path


@pytest.mark.usefixtures("passes_forgotten")
def test_a_loaded_pass_runs_in_a_plan(tmp_path: Path, kernel_file: Write, staircase: sp.csr_array) -> None:
    load_file(plugin(tmp_path))
    plan = "set-encoding,look-twice{loud=true often=3},accumulate-registers,rows-to-threads,map-blocks"
    compiled = compile_file(kernel_file(matvec()), {"A": staircase}, plan=plan)
    assert sys.modules["sparseditto_plugin_look_twice"].RUNS == [(3, True, 2)]
    assert "look-twice{often=3 loud=true}" in compiled.plan.text()
    assert Plan.parse(compiled.plan.text()).steps == compiled.plan.steps
    result = run(compiled.package, {"A": staircase}, verify=True)
    assert result.check is not None
    assert result.check.passed
    with pytest.raises(PlanError, match="loud=yes: say true or false"):
        Plan.parse("look-twice{loud=yes}")


@pytest.mark.usefixtures("passes_forgotten")
def test_types_of_options_may_be_written_either_way(tmp_path: Path) -> None:
    load_file(plugin(tmp_path, PLUGIN, "look-later"))
    load_file(plugin(tmp_path, PLUGIN.replace("from __future__ import annotations", ""), "look-now"))
    for name in ("look-later", "look-now"):
        assert find(name).make({"often": "2", "loud": "true"}).options() == {"often": 2, "loud": True}


@pytest.mark.usefixtures("passes_forgotten")
def test_a_file_may_be_loaded_twice(tmp_path: Path) -> None:
    load_file(plugin(tmp_path))
    load_file(plugin(tmp_path))
    assert "look-twice" in registry()


@pytest.mark.usefixtures("passes_forgotten")
def test_a_taken_name_is_refused(tmp_path: Path) -> None:
    mine = find("unroll")
    with pytest.raises(PlanError, match=r"registers a pass 'unroll', which sparseditto\.passes\.schedule\.unroll has already"):
        load_file(plugin(tmp_path, name="unroll"))
    assert find("unroll") is mine


@pytest.mark.usefixtures("passes_forgotten")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("def f(:", "SyntaxError"),
        ("raise ValueError('not today')", "ValueError: not today"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_files_that_cannot_be_loaded(text: str, message: str, tmp_path: Path) -> None:
    path = plugin(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        load_file(path)
    assert caught.value.where == str(path)
    assert "sparseditto_plugin_look_twice" not in sys.modules


@pytest.mark.parametrize("name", ["missing.py", "folder", "pass.txt"])
def test_what_is_no_python_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "pass.txt").write_text("hello")
    with pytest.raises(InputError, match="no Python file to load passes from"):
        load_file(tmp_path / name)


@pytest.mark.usefixtures("passes_forgotten")
def test_entry_points_register_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = plugin(tmp_path, name="from-an-entry-point")

    class Entry:
        def load(self) -> ModuleType:
            load_file(path)
            return sys.modules["sparseditto_plugin_from_an_entry_point"]

    monkeypatch.setattr(registry_module, "entry_points", lambda group: [Entry()] if group == "sparseditto.passes" else [])
    scan = registry_module._scan.__wrapped__
    monkeypatch.setattr(registry_module, "_scan", lambda: None)
    scan()
    assert "from-an-entry-point" in registry()


# --- The planner --------------------------------------------------------------------------------------


def features(**changes: Any) -> Features:
    given = {
        "rows": 1000,
        "columns": 1000,
        "entries": 8000,
        "mean_row": 8.0,
        "max_row": 12,
        "variation": 0.1,
        "empty_rows": 0.0,
        "ell_padding": 9.0,
        "diagonal_padding": 9.0,
    }
    return Features(**{**given, **changes})


def task(**changes: Any) -> Task:
    given = {"rows_first": True, "choose_format": True, "columns": 0, "element_bytes": 4, "shape": (1000, 1000)}
    return Task(**{**given, **changes})


def chosen(plan: Plan, name: str) -> dict[str, Any]:
    return next(step.options() for step in plan.steps if step.name == name)


def names(plan: Plan) -> list[str]:
    return [step.name for step in plan.steps]


def lanes_of(plan: Plan) -> int:
    """How many lanes share a row."""
    return 1 if "rows-to-threads" in names(plan) else int(chosen(plan, "rows-to-subgroups")["lanes"])


def test_longer_rows_get_more_lanes() -> None:
    lanes = {mean: lanes_of(default_plan(task(), features(mean_row=mean), Target())) for mean in (0, 1, 3, 5, 30, 100, 1e6)}
    assert list(lanes.values()) == sorted(lanes.values())
    assert lanes[0] == lanes[1] == 1
    assert lanes[1e6] == 32
    assert all(n <= max(1, mean) for mean, n in lanes.items()), "a lane without entries"


@pytest.mark.parametrize(
    ("columns", "element_bytes"), [(64, 4), (64, 8), (8, 4), (6, 4), (9, 4), (33, 8), (143, 4), (2, 8), (2, 4)]
)
def test_vectors_divide_the_columns(columns: int, element_bytes: int) -> None:
    plan = default_plan(task(columns=columns, element_bytes=element_bytes), features(), Target())
    width = chosen(plan, "vectorize")["width"] if "vectorize" in names(plan) else 1
    assert columns % width == 0
    assert width * element_bytes <= 16
    assert width > 1 or columns % 2 or columns == 2
    groups = chosen(plan, "rows-to-subgroups")["groups"]
    assert lanes_of(plan) // groups * width < 2 * columns, "a lane without columns"


def test_idle_threads_share_the_entries() -> None:
    few = chosen(default_plan(task(columns=32), features(rows=1000, mean_row=16.0), Target()), "rows-to-subgroups")
    many = chosen(default_plan(task(columns=32), features(rows=1_000_000, mean_row=16.0), Target()), "rows-to-subgroups")
    assert few["lanes"] == 32
    assert few["groups"] > 1
    assert many["groups"] == 1


@pytest.mark.parametrize(("columns", "cut"), [(0, "stage-entries"), (8, "segment-rows"), (128, "split-entries")])
def test_a_row_that_holds_the_others_up_is_cut(columns: int, cut: str) -> None:
    skewed = features(rows=100_000, entries=800_000, max_row=90_000)
    assert cut in names(default_plan(task(columns=columns), skewed, Target()))
    assert cut not in names(default_plan(task(columns=columns), features(rows=100_000, entries=800_000), Target()))
    assert cut not in names(default_plan(task(columns=columns, plain_rows=False), skewed, Target()))


def planned(
    columns: int = 0, columns_of_matrix: int = 200_000, task_changes: dict[str, Any] | None = None, **changes: Any
) -> Plan:
    """The default plan for many rows of about ten entries; `changes` are features."""
    given = {"rows": 200_000, "columns": columns_of_matrix, "entries": 2_000_000, "mean_row": 10.0}
    wanted = task(columns=columns, shape=(200_000, columns_of_matrix), **(task_changes or {}))
    return default_plan(wanted, features(**{**given, **changes}), Target())


@pytest.mark.parametrize("columns", [0, 8])
def test_rows_that_resemble_each_other_are_sliced(columns: int) -> None:
    assert chosen(planned(columns, span=65_535), "slice-rows")["offsets"] == 16
    assert chosen(planned(columns, span=65_536), "slice-rows")["offsets"] == 32


def test_offsets_reach_as_far_as_the_slices_that_are_stored() -> None:
    """Rows that are sorted stand beside others than they did."""
    near = {"span": 100, "span_sorted": 70_000}
    assert chosen(planned(padding=1.05, padding_sorted=1.0, **near), "slice-rows") == {"height": 32, "window": 1, "offsets": 16}
    sorted_rows = chosen(planned(padding=1.4, padding_sorted=1.0, **near), "slice-rows")
    assert (sorted_rows["window"], sorted_rows["offsets"]) == (1024, 32)
    assert chosen(planned(padding=1.4, padding_sorted=1.0, span_sorted=100), "slice-rows")["offsets"] == 16


@pytest.mark.parametrize("columns", [0, 8])
@pytest.mark.parametrize(
    "changes",
    [
        {"padding": 9.0, "padding_sorted": 9.0},
        {"entries": 2**31 - 1, "padding": 1.4, "padding_sorted": 1.4},
        {"task_changes": {"one_sum": False}},
        {"task_changes": {"plain_rows": False}},
        {"task_changes": {"gathers": False}},
    ],
    ids=str,
)
def test_what_cannot_be_sliced_is_not(changes: dict[str, Any], columns: int) -> None:
    assert "slice-rows" in names(planned(columns, span=100))
    assert "slice-rows" not in names(planned(columns, span=100, **changes))


@pytest.mark.parametrize("count", [256, 65_536])
def test_pinned_coordinates_that_may_all_be_taken_leave_no_mark(count: int) -> None:
    pinned = {"choose_format": False}
    assert "slice-rows" in names(planned(task_changes=pinned))
    assert "slice-rows" in names(planned(task_changes={"choose_format": True}, columns_of_matrix=count))
    assert "slice-rows" not in names(planned(task_changes=pinned, columns_of_matrix=count))


@pytest.mark.parametrize(("count", "bits"), [(65_535, 16), (65_536, 32)])
@pytest.mark.parametrize("columns", [0, 8])
def test_where_places_are_marked_a_coordinate_is_left_for_the_mark(columns: int, count: int, bits: int) -> None:
    plan = planned(columns, columns_of_matrix=count, span=100)
    assert "slice-rows" in names(plan)
    assert chosen(plan, "set-encoding")["coordinates"] == bits


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"diagonals": 10, "diagonal_padding": 1.0}, "diagonals"),
        ({"ell_padding": 1.0, "max_row": 10}, "ell-rows"),
        ({"fill_4": 0.95}, "jam-block-rows"),
        ({"empty_rows": 0.9}, "nonempty-rows"),
        ({"diagonals": 20, "diagonal_padding": 1.9}, "slice-rows"),
        ({"fill_4": 0.5}, "slice-rows"),
    ],
    ids=str,
)
def test_what_moves_the_fewest_bytes_comes_first(changes: dict[str, Any], first: str) -> None:
    assert first in names(planned(span=100, **changes))


def test_rows_that_share_most_columns_stand_by_length() -> None:
    """Where a row has entries in much of all columns, and the caches would not hold them otherwise."""
    layer = {"rows": 8192, "columns": 28_672, "entries": 70_000_000, "mean_row": 8600.0, "max_row": 22_000, "padding": 1.8}
    layer |= {"padding_sorted": 1.03, "variation": 0.3}
    wanted = task(columns=128, shape=(8192, 28_672))
    plan = default_plan(wanted, features(**layer), Target())
    assert chosen(plan, "reorder") == {"rows": "degree", "columns": "none"}
    assert "share-loads" in names(plan)
    sparse = layer | {"columns": 1_000_000, "mean_row": 8600.0}
    assert "reorder" not in names(default_plan(wanted, features(**sparse), Target()))


def test_few_rows_are_not_sliced() -> None:
    assert "slice-rows" not in names(planned(rows=1000, entries=10_000))


def test_a_row_that_holds_up_others_is_staged_where_its_terms_allow_it() -> None:
    skewed = {"entries": 1_000_000, "max_row": 190_000, "variation": 9.0, "padding": 30.0, "padding_sorted": 20.0}
    assert "stage-entries" in names(planned(**skewed))
    for change in ({"row_terms": True}, {"one_sum": False}, {"plain_rows": False}):
        assert "stage-entries" not in names(planned(task_changes=change, **skewed))
    assert "bin-rows" in names(planned(task_changes={"row_terms": True}, **skewed))


def test_blocks_are_stored_only_where_the_format_is_free() -> None:
    full = {"fill_8": 0.95, "fill_4": 0.95, "span": 100, "rows": 1000, "entries": 64_000, "mean_row": 64.0}
    free = ranked(task(columns=32), features(**full), Target())
    pinned = ranked(task(columns=32, choose_format=False), features(**full), Target())
    assert any(chosen(plan, "set-encoding")["format"] == "bsr" for plan in free)
    assert not any("set-encoding" in names(plan) for plan in pinned)


@pytest.mark.parametrize("columns", [0, 1, 4, 8, 33, 64, 128, None])
@pytest.mark.parametrize("known", [True, False])
def test_ranked_plans_differ_and_begin_with_the_default(columns: int | None, known: bool) -> None:
    found = features(span=10) if known else None
    plans = ranked(task(columns=columns), found, Target())
    assert plans[0] == default_plan(task(columns=columns), found, Target())
    assert len({plan.digest() for plan in plans}) == len(plans)


@pytest.mark.parametrize("columns", [0, 1])
def test_one_column_is_shared_by_entries(columns: int) -> None:
    plan = default_plan(task(columns=columns), features(mean_row=50.0), Target())
    assert "vectorize" not in names(plan)
    assert chosen(plan, "rows-to-subgroups")["share"] == "entries"


def test_a_number_of_columns_that_is_not_known_is_not_vectorised() -> None:
    plan = default_plan(task(columns=None), None, Target())
    assert "vectorize" not in names(plan)
    assert chosen(plan, "rows-to-subgroups") == {"lanes": 32, "share": "columns", "groups": 1}


@pytest.mark.parametrize(
    ("shape", "rows_first", "width"),
    [
        ((10, 65_536), True, 16),
        ((10, 65_537), True, 32),
        ((65_537, 10), True, 16),
        ((65_537, 10), False, 32),
        ((10, 2**31), True, 64),
        ((None, None), True, 32),
    ],
)
def test_coordinates_are_as_narrow_as_fits(shape: tuple[Any, Any], rows_first: bool, width: int) -> None:
    plan = default_plan(task(shape=shape, rows_first=rows_first), None, Target())
    assert chosen(plan, "set-encoding")["coordinates"] == width
    assert chosen(plan, "set-encoding")["format"] == ("csr" if rows_first else "csc")


def test_many_entries_need_wide_positions() -> None:
    assert chosen(default_plan(task(), features(entries=2**31), Target()), "set-encoding")["positions"] == 64
    assert chosen(default_plan(task(), features(entries=2**31 - 1), Target()), "set-encoding")["positions"] == 32


def test_a_pinned_operand_keeps_its_encoding() -> None:
    assert "set-encoding" not in names(default_plan(task(choose_format=False), features(), Target()))


def test_a_plan_carries_its_kernel() -> None:
    assert default_plan(task(kernel="abc"), None, Target()).kernel == "abc"


@pytest.mark.parametrize("text", [matvec(), matmul(), transposed_matvec()])
def test_a_kernel_without_a_matrix_has_a_plan(text: str, kernel_file: Write, staircase: sp.csr_array) -> None:
    compiled = compile_file(kernel_file(text))
    assert compiled.features is None
    result = run(compiled.package, {"A": staircase}, {"K": 7} if "matmul" in text else {}, verify=True)
    assert result.check is not None
    assert result.check.passed


# --- Features -----------------------------------------------------------------------------------------


def test_features_of_a_matrix(staircase: sp.csr_array) -> None:
    f = analyse(staircase)
    lengths = np.array([*range(66), 0, 0, 0])
    assert (f.rows, f.columns, f.entries, f.max_row) == (69, 67, lengths.sum(), 65)
    assert f.mean_row == pytest.approx(lengths.mean())
    assert f.variation == pytest.approx(lengths.std() / lengths.mean())
    assert f.empty_rows == pytest.approx(4 / 69)
    assert json.loads(json.dumps(f.to_json())) == f.to_json()


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (3, 4)])
def test_features_without_entries(shape: tuple[int, int]) -> None:
    for f in (analyse(sp.csr_array(shape)), transposed(sp.csr_array(shape))):
        assert (f.mean_row, f.max_row, f.variation) == (0.0, 0, 0.0)
    assert (transposed(sp.csr_array(shape)).rows, transposed(sp.csr_array(shape)).columns) == shape[::-1]


def test_features_of_the_transposed(staircase: sp.csr_array) -> None:
    assert transposed(staircase) == analyse(sp.csr_array(staircase.T))


def slices_of(lengths: list[int], window: int) -> list[list[int]]:
    """Rows in slices of 32, sorted by falling length within windows."""
    rows: list[int] = []
    for start in range(0, len(lengths), window):
        rows += sorted(range(start, min(start + window, len(lengths))), key=lambda row: -lengths[row] if window > 1 else 0)
    return [rows[i : i + 32] for i in range(0, len(rows), 32)]


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.one_of(
        st.lists(st.one_of(st.just(0), st.integers(0, 4), st.integers(0, 60)), max_size=100),
        st.integers(1000, 1200).map(lambda n: [7 * i % 13 for i in range(n)]),
    ),
    seed=st.integers(0, 99),
)
def test_padding_and_spans_are_what_slices_have(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(1000, size=n, replace=False)) for n in lengths]
    starts = np.cumsum([0, *lengths])
    a = sp.csr_array((np.ones(starts[-1]), np.concatenate([*columns, []]).astype(int), starts), (len(lengths), 1000))
    f, total = analyse(a), sum(lengths)
    for window, padding, span in ((1, f.padding, f.span), (1024, f.padding_sorted, f.span_sorted)):
        slices = slices_of(lengths, window)
        places = sum(32 * max(lengths[row] for row in rows) for rows in slices)
        assert padding == (pytest.approx(places / total) if total else 1.0)
        read = [[int(c) for row in rows for c in columns[row]] for rows in slices]
        assert span == max((max(cs) - min(cs) + 1 for cs in read if cs), default=0)
