"""The learned prior: what a fit finds, what is held out, what a file keeps, and what the commands say."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES
from memories import H200, right

ROOT = Path(__file__).resolve().parents[1]

from benchmarks import prior as shipped  # noqa: E402
from sparseditto.agent.features import Features, Hardware, analyse, definitions  # noqa: E402
from sparseditto.agent.memory.database import Database  # noqa: E402
from sparseditto.agent.memory.exchange import Entry, entries, entries_of, lines  # noqa: E402
from sparseditto.agent.memory.keys import EMULATOR, Compiler, Gpu, Operator, Structure, TaskKey  # noqa: E402
from sparseditto.agent.memory.trial import Measurement  # noqa: E402
from sparseditto.agent.planner import Task  # noqa: E402
from sparseditto.agent.prior import Prior, Subject, bins, crossval, fit  # noqa: E402
from sparseditto.agent.prior.choices import choices, pass_of, relations  # noqa: E402
from sparseditto.agent.prior.learn import learn, validate_all  # noqa: E402
from sparseditto.agent.prior.subject import FEATURES, SPMM, SPMV  # noqa: E402
from sparseditto.agent.prior.training import Data, Group, collect, op_of, read_features, value_bytes  # noqa: E402
from sparseditto.agent.space import Context, Space  # noqa: E402
from sparseditto.compiler.cli import main  # noqa: E402
from sparseditto.compiler.cli.common import run_and_report  # noqa: E402
from sparseditto.compiler.kernel import read_kernel_file  # noqa: E402
from sparseditto.compiler.task_keys import operator_of  # noqa: E402
from sparseditto.dialects.binding import context  # noqa: E402
from sparseditto.dialects.errors import InputError  # noqa: E402
from sparseditto.passes import registry  # noqa: E402
from sparseditto.passes.base import SchedulePass, option  # noqa: E402
from sparseditto.passes.plan import Plan  # noqa: E402

HEAD = "set-encoding,accumulate-registers"
LANES = (1, 2, 4, 8, 16, 32)
SPMV_TASK = Task(True, True, 0, 4)
SPMM_TASK = Task(True, True, 32, 4)
GPU = Hardware()


def matrix_features(rows: int, mean: int) -> Features:
    generator = np.random.default_rng(rows + mean)
    return analyse(sp.csr_array(sp.random_array((rows, rows), density=mean / rows, rng=generator, dtype=np.float32)))


def plan(lanes: int, factor: int = 4) -> Plan:
    return Plan.parse(f"{HEAD},rows-to-subgroups{{lanes={lanes} share=entries}},unroll{{factor={factor}}},map-blocks")


def log_time(lanes: int, factor: int, mean: float) -> float:
    """What the tests plant: long rows want many lanes, short ones few, and unrolling helps by a quarter."""
    wanted = 5 if mean > 20 else 1
    return 0.1 * abs(math.log2(lanes) - wanted) + (0.25 if factor == 4 else 0.0)


def group(number: int, family: str, mean: int) -> Group:
    features = matrix_features(200 + 10 * number, mean)
    tried = [(lanes, factor) for lanes in LANES for factor in (4, 8)]
    return Group(
        Subject.product(features, 1, 4, GPU),
        family,
        f"matrix {number}",
        features,
        (features.rows, features.columns),
        "",
        tuple(plan(*one) for one in tried),
        tuple(5.0 * 2 ** log_time(*one, features.mean_row) for one in tried),
    )


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return [group(n, f"family {n % 6}", (4, 40)[n % 2]) for n in range(24)]


@pytest.fixture(scope="module")
def spmv_features() -> Features:
    return matrix_features(500, 30)


# --- The fit ----------------------------------------------------------------------------------------------


def test_a_fit_recovers_planted_weights(groups: list[Group]) -> None:
    """Of the matrices that are learned from, and of two others."""
    prior = Prior({SPMV: fit.fit(groups, 0.01)}, GPU, {})
    others = [Subject.product(matrix_features(333, mean), 1, 4, GPU) for mean in (4, 40)]
    for subject, within in [*((g.subject, 0.02) for g in groups), *((other, 0.06) for other in others)]:
        scorer, mean = prior.of(subject), subject.numbers["mean_row"]
        zero = scorer.judge(plan(4)).energy - log_time(4, 4, mean)
        for lanes, factor in itertools.product(LANES, (4, 8)):
            energy = scorer.judge(plan(lanes, factor)).energy - zero
            assert energy == pytest.approx(log_time(lanes, factor, mean), abs=within)


def test_the_fit_is_that_of_the_normal_equations(groups: list[Group]) -> None:
    """With the design matrix formed, which the fit never does."""
    table = fit.Table(groups[:8])
    chosen = np.arange(8) != 3
    dense = np.zeros((table.target.size, *table.shape))
    dense[table.plan, table.choice] = table.steps[table.group[table.plan]]
    design = dense.reshape(table.target.size, -1)
    target = table.centred(table.target)
    design = np.stack([table.centred(column) for column in design.T], axis=1)
    keep = chosen[table.group]
    design, target = design[keep], target[keep]
    exact = np.linalg.solve(design.T @ design + 2.0 * np.eye(design.shape[1]), design.T @ target)
    assert np.allclose(table.solve(2.0, chosen).ravel(), exact, atol=1e-3)


def test_the_same_data_give_the_same_weights(groups: list[Group]) -> None:
    first, second = (fit.fit(groups, 10.0).to_json() for _ in range(2))
    assert first == second


def test_a_slow_task_is_not_held_against_its_plans(groups: list[Group]) -> None:
    slower = [dataclasses.replace(g, us=tuple(7.0 * us for us in g.us)) for g in groups]
    assert fit.fit(slower, 10.0).to_json() == fit.fit(groups, 10.0).to_json()


def test_rare_choices_and_those_that_say_the_same_have_no_weights(groups: list[Group]) -> None:
    rare = Plan.parse(f"{HEAD},rows-to-threads,map-blocks")
    changed = dataclasses.replace(groups[0], plans=(*groups[0].plans, rare), us=(*groups[0].us, 9.0))
    words = fit.Table([changed, *groups[1:]]).trials
    assert "rows-to-threads" not in words  # one plan has it
    assert "unroll.tail=loop" not in words
    assert "unroll" in words
    assert "set-encoding" not in words  # all have it


# --- Bins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ((8, 32, 8, 128, 256), (8, 32, 128)),
        ((4, 4), ()),
        ((0, 1), (0,)),
        (tuple(range(60)), (9.8333, 19.667, 29.5, 39.333, 49.167)),
    ],
)
def test_edges(values: tuple[float, ...], edges: tuple[float, ...]) -> None:
    assert bins.edges_of(values) == edges


def test_a_value_lies_in_one_bin() -> None:
    edges = (1.0, 4.0)
    assert [bins.place(edges, value) for value in (-3, 1.0, 1.1, 4.0, 9)] == [0, 0, 1, 1, 2]
    assert [bins.in_words(edges, number) for number in range(3)] == ["<= 1", "1 to 4", "> 4"]
    steps = bins.steps({"a": edges}, [{"a": value} for value in (0, 2, 5)])
    assert steps.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_features_are_those_that_are_declared(spmv_features: Features) -> None:
    assert set(FEATURES) - {"value_bytes"} <= {d.name for d in definitions()}
    assert set(FEATURES) <= Subject.product(spmv_features, 1, 4, GPU).numbers.keys()


# --- Choices ----------------------------------------------------------------------------------------------


def test_words_of_a_plan(spmv_features: Features) -> None:
    subject = Subject.product(spmv_features, 1, 4, GPU)
    text = f"{HEAD},rows-to-subgroups{{lanes=8 share=entries}},unroll{{factor=4}},map-blocks{{threads=192}}"
    words = choices(Plan.parse(text), subject)
    assert {"unroll", "unroll.factor=4", "map-blocks.threads=256", "rows-to-subgroups.share=entries", "loads ~ 4"} <= set(words)
    assert not any(word.startswith("set-encoding.block") for word in words)  # CSR has no blocks
    assert len(words) == len(set(words))
    assert pass_of("unroll.factor=4") == "unroll"
    assert pass_of("loads ~ 4") == ""


def of(text: str, columns: int, features: Features) -> dict[str, str]:
    return dict(relations(Plan.parse(text), Subject.product(features, columns, 4, GPU)))


def test_relations_of_rows_lanes_and_columns() -> None:
    features = dataclasses.replace(matrix_features(500, 30), rows=1 << 16, entries=1 << 21, mean_row=32.0, max_row=1000)
    shared = f"{HEAD},{{}}rows-to-subgroups{{{{lanes=8 share=columns groups=2}}}},{{}}map-blocks"
    found = of(shared.format("vectorize{width=4},", "unroll{factor=8},"), 128, features)
    assert found["tiles"] == "4"
    assert found["loads"] == "32"
    assert found["entries a lane"] == "16"
    assert found["longest row a lane"] == "512"
    assert found["waves"] == "16"  # 65,536 rows * 4 tiles * 16 lanes / 270,336
    cut = of(f"{HEAD},segment-rows{{length=64}},rows-to-subgroups{{lanes=8 share=entries}},map-blocks", 1, features)
    assert cut["longest row a lane"] == "8"
    assert cut["entries a lane"] == "4"
    even = of(f"{HEAD},split-entries{{length=256}}", 1, features)
    assert even["parts a multiprocessor"] == "64"
    assert even["rows a part"] == "8"
    assert "entries a lane" not in even


def test_bytes_of_storage() -> None:
    features = dataclasses.replace(matrix_features(500, 30), padding=2.0, fill_2=0.5)
    rows = "accumulate-registers,rows-to-threads,map-blocks"
    assert of(f"set-encoding{{format=csr coordinates=32}},{rows}", 1, features)["bytes over CSR"] == "1.00"
    assert of(f"set-encoding{{format=csr coordinates=16}},{rows}", 1, features)["bytes over CSR"] == "0.71"  # 6 of 8
    sliced = "set-encoding,accumulate-registers,slice-rows{window=1 offsets=32},rows-to-threads,map-blocks"
    assert of(sliced, 1, features)["bytes over CSR"] == "2.00"
    blocked = f"set-encoding{{format=bsr coordinates=32 block-rows=2 block-columns=2}},{rows}"
    assert of(blocked, 1, features)["bytes over CSR"] == "1.19"  # (4 + 4/4) / 0.5 of 8


@pytest.mark.parametrize("columns", [0, 32])
def test_every_plan_of_a_search_has_words(columns: int) -> None:
    """Also on the strangest of matrices."""
    prior = Prior.load()
    for name, build in MATRICES.items():
        features = analyse(build().tocsr())
        task = dataclasses.replace(SPMV_TASK, columns=columns, shape=(features.rows, features.columns))
        space = Space(Context(task, features))
        scorer = prior.at(task, features)
        for one in itertools.islice(space.seeds(), 8):
            assert math.isfinite(scorer.judge(one).energy), name


# --- Cross-validation -------------------------------------------------------------------------------------


def test_no_family_is_divided() -> None:
    families = [name for name, count in {"a": 9, "b": 4, "c": 4, "d": 1, "e": 1, "f": 1}.items() for _ in range(count)]
    held = crossval.folds(families, 3)
    assert sum(held).tolist() == [1] * len(families)  # each group is held out once
    for fold in held:
        inside = {family for family, out in zip(families, fold, strict=True) if out}
        assert not inside & {family for family, out in zip(families, fold, strict=True) if not out}
    assert sorted(int(fold.sum()) for fold in held) == [5, 6, 9]


def test_a_family_with_other_times_does_not_leak(groups: list[Group], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is predicted of a held-out family does not depend on its times."""
    monkeypatch.setattr(crossval, "PENALTIES", (1.0,))
    turned = [dataclasses.replace(g, us=tuple(reversed(g.us))) if g.family == "family 2" else g for g in groups]
    orders = []
    for some in (groups, turned):
        validated = crossval.validate(SPMV, some)
        place = next(n for n, g in enumerate(some) if g.family == "family 2")
        orders.append((some[place], validated.regrets[place]))
    (straight, good), (_, bad) = orders
    assert good == crossval.Regret(1.0, 1.0)
    best = straight.us.index(min(straight.us))
    assert bad.first == pytest.approx(straight.us[-1 - best] / min(straight.us))


def test_validation_needs_two_families(groups: list[Group]) -> None:
    with pytest.raises(InputError, match="one family"):
        crossval.validate(SPMV, [g for g in groups if g.family == "family 1"])


def test_regret_of_chance_is_the_mean_over_all_orders(groups: list[Group]) -> None:
    slow = np.array(groups[0].slowdowns())
    found = crossval.at_random(groups[0])
    generator = np.random.default_rng(0)
    sampled = [slow[generator.permutation(slow.size)[:5]].min() for _ in range(20_000)]
    assert found.five == pytest.approx(np.exp(np.mean(np.log(sampled))), rel=2e-3)
    assert found.first == pytest.approx(np.exp(np.mean(np.log(slow))))


# --- What is learned from ---------------------------------------------------------------------------------


def spmv_operator() -> Operator:
    with context():
        return operator_of(read_kernel_file(ROOT / "examples" / "spmv.mlir", None).computation)


def entry(case: str, us: dict[Plan, float | str], **changes: Any) -> Entry:
    """A task with times, or outcomes, by plan."""
    key = TaskKey(Structure(case, 500, 500, 15_000), spmv_operator(), (), "sm_90", H200, Compiler("0", "0", "0", "c"))
    about, features = {"family": f"of {case}"}, changes.pop("features", matrix_features(500, 30).to_json())
    with Database(None) as database:
        number = database.begin(dataclasses.replace(key, **changes), features, about)
        for one, result in us.items():
            database.add(number, one, Measurement(result) if isinstance(result, str) else right(result))
        return next(entries(database))


TWO: dict[Plan, float | str] = {plan(1): 3.0, plan(2): 2.0, plan(4): "timeout", plan(8): "not-applicable"}


def test_only_right_results_count() -> None:
    (found,) = collect([entry("a", TWO)], GPU).groups
    assert sorted(found.us) == [2.0, 3.0]
    assert found.subject.op == SPMV
    assert found.family == "of a"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": Gpu(EMULATOR, "")}, "emulated"),
        ({"caches": "cold"}, "cold caches"),
        ({"features": None}, "lacks features"),
        ({"features": {"rows": 500}}, "lacks features"),
        ({"operator": Operator("k", "#CSR", "float32")}, "free storage"),
        ({"K": (8, 4)}, "neither"),
    ],
)
def test_what_is_left_out_is_told(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=f"1 tasks: .*{reason}"):
        collect([entry("a", TWO, **changes)], GPU)
    data = collect([entry("a", TWO, **changes), entry("b", TWO)], GPU)
    assert len(data.groups) == 1
    assert sum(data.left_out.values()) == 1


def test_the_same_task_of_two_compilers_is_one() -> None:
    newer = Compiler("0", "0", "0", "d")
    data = collect([entry("a", TWO), entry("a", {plan(2): 9.0, plan(16): 1.0}, compiler=newer)], GPU)
    (found,) = data.groups
    assert dict(zip(found.plans, found.us, strict=True)) == {plan(1): 3.0, plan(2): 9.0, plan(16): 1.0}
    assert data.versions["code"] == ["c", "d"]


def test_one_gpu_is_learned_from() -> None:
    two = [entry("a", TWO), entry("b", TWO, gpu=Gpu("another", "8.0"))]
    with pytest.raises(InputError, match=r"NVIDIA H200, another; choose one by --gpu"):
        collect(two, GPU)
    assert len(collect(two, GPU, "another").groups) == 1


def test_features_by_name_take_the_place_of_those_recorded() -> None:
    found = read_features([json.dumps({"case": "a", "features": matrix_features(500, 30).to_json()})], "f")
    old = dataclasses.replace(entry("x", TWO, features={"rows": 500}), about={"case": "a", "family": "f"})
    assert len(collect([old], GPU, features=found).groups) == 1
    with pytest.raises(InputError, match="f:1"):
        read_features(["{}"], "f")


@pytest.mark.parametrize(
    ("file", "op", "size"), [("spmv", SPMV, 4), ("spmm", SPMM, 4), ("gemm", SPMM, 4), ("spmm_f16", SPMM, 2)]
)
def test_kernels_are_known_by_what_they_compute(file: str, op: str, size: int) -> None:
    with context():
        operator = operator_of(read_kernel_file(ROOT / "examples" / f"{file}.mlir", None).computation)
    columns = (8,) if op == SPMM else ()
    assert op_of(operator, columns) == op
    assert value_bytes(operator) == size
    assert op_of(operator, () if columns else (8,)) is None
    sampled = json.loads(operator.computation)
    sampled["operands"] = [*sampled["operands"], sampled["operands"][1]]  # four operands: no product of two
    assert op_of(dataclasses.replace(operator, computation=json.dumps(sampled)), columns) is None


# --- The prior --------------------------------------------------------------------------------------------


def made(groups: list[Group]) -> Prior:
    data = Data(H200, tuple(groups), {}, 0, {}, "")
    return learn(data, GPU, validate_all(data))


def test_a_file_keeps_everything(groups: list[Group], tmp_path: Path, spmv_features: Features) -> None:
    prior, path = made(groups), tmp_path / "prior.json"
    prior.write(path)
    again = Prior.read(path)
    assert again.to_json() == json.loads(json.dumps(prior.to_json()))
    again.write(tmp_path / "again.json")
    assert path.read_text() == (tmp_path / "again.json").read_text()
    assert again.energy(plan(8), SPMV_TASK, spmv_features) == pytest.approx(
        prior.energy(plan(8), SPMV_TASK, spmv_features), abs=0.01
    )
    assert prior.provenance["tasks"] == 24
    assert prior.provenance["families"] == 6
    assert [row["prior_first"] for row in prior.provenance["cross_validation"]] == [1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "is no prior"),
        ('{"kind": "prior", "schema": 2}', "schema 2; this release reads 1"),
        ('{"kind": "prior", "schema": 1}', "missing or wrong"),
        (None, "cannot be read"),
    ],
)
def test_other_files_are_refused(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "prior.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        Prior.read(path)


def test_weights_must_fit_their_bins(groups: list[Group]) -> None:
    data = json.loads(json.dumps(made(groups).to_json()))
    next(iter(data["models"][SPMV]["choices"].values()))[2] = {"mean_row": [0.1]}
    with pytest.raises(InputError, match="not as many weights as bins"):
        Prior.from_json(data)


@pytest.fixture
def new_pass() -> Iterator[type[SchedulePass]]:
    """A pass that a person registers."""

    @registry.register
    @dataclasses.dataclass(frozen=True)
    class Novel(SchedulePass):
        """New."""

        name: ClassVar[str] = "novel"
        depth: int = option("how deep", default=3, choices=(3, 300))

    registry.registry()
    yield Novel
    del registry._passes["novel"]


@pytest.mark.usefixtures("new_pass")
def test_an_unknown_pass_is_neither_favoured_nor_punished(spmv_features: Features) -> None:
    scorer = Prior.load().at(SPMV_TASK, spmv_features)
    without = scorer.judge(plan(8))
    with_it = scorer.judge(Plan.parse(plan(8).text().replace("rows-to", "novel{depth=300},rows-to")))
    assert with_it.energy == pytest.approx(without.energy, abs=1e-12)
    assert set(with_it.unknown) - set(without.unknown) == {"novel", "novel.depth=256"}


def test_an_explanation_adds_up(spmv_features: Features) -> None:
    prior = Prior.load()
    for task in (SPMV_TASK, SPMM_TASK):
        terms = prior.explain(plan(8), task, spmv_features)
        assert sum(term.energy for term in terms) == pytest.approx(prior.energy(plan(8), task, spmv_features), abs=1e-9)
        assert abs(terms[0].energy) == max(abs(term.energy) for term in terms)


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": None},
        {"choose_format": False},
        {"one_sum": False},
        {"reduction": False},
        {"row_terms": True},
        {"gathers": False},
    ],
)
def test_other_tasks_are_refused(changes: dict[str, Any], spmv_features: Features) -> None:
    prior, task = Prior.load(), dataclasses.replace(SPMV_TASK, **changes)
    assert prior.covers(SPMV_TASK)
    assert prior.covers(SPMM_TASK)
    assert not prior.covers(task)
    with pytest.raises(InputError, match=r"planner\.ranked"):
        prior.energy(plan(8), task, spmv_features)


def test_a_gpu_without_a_prior_is_refused() -> None:
    with pytest.raises(InputError, match="no prior ships for the GPU 'A100', only for NVIDIA H200"):
        Prior.load("A100")


# --- What ships -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [SPMV_TASK, SPMM_TASK])
def test_the_shipped_weights_rank_two_hundred_plans_in_time(task: Task) -> None:
    features = dataclasses.replace(matrix_features(500, 30), rows=1 << 18, entries=1 << 22, mean_row=16.0)
    space = Space(Context(task, features))
    plans = {p.digest(): p for seed in itertools.islice(space.seeds(), 48) for p in (seed, *space.neighbours(seed)[:40])}
    many = list(plans.values())[:200]
    assert len(many) == 200
    prior = Prior.load()
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        found = prior.rank(many, task, features)
        rounds.append(time.perf_counter() - start)
    assert sorted(p.digest() for p in found) == sorted(p.digest() for p in many)
    energies = [prior.energy(p, task, features) for p in found]
    assert energies == sorted(energies)
    assert min(rounds) < 0.010


def test_shipped_weights_know_what_tells_plans_apart() -> None:
    """Of a matrix with long rows, a thread a row is slower than a warp."""
    prior, long = Prior.load(), matrix_features(2000, 400)
    threads = Plan.parse(f"{HEAD},rows-to-threads,unroll,map-blocks")
    assert prior.energy(threads, SPMV_TASK, long) > prior.energy(plan(32), SPMV_TASK, long)


def test_the_shipped_file_says_where_it_is_from() -> None:
    about = Prior.load().provenance
    assert about["gpu"] == "NVIDIA H200"
    assert about["tasks"] >= 445
    assert about["families"] == 26
    assert shipped.SHIPPED.stat().st_size < 1 << 20
    assert shipped.numbers(Prior.load()) == json.loads(shipped.NUMBERS.read_text())


def test_the_shipped_spmv_weights_are_those_of_the_committed_results() -> None:
    """The larger half is left to `python -m benchmarks.prior --check`."""
    groups = shipped.data().of(SPMV)
    made = fit.fit(groups, Prior.load().provenance["penalties"][SPMV])
    there = Prior.load().models[SPMV]
    assert not list(shipped.differences(json.loads(json.dumps(made.to_json())), there.to_json(), shipped.WEIGHTS_AWAY, ""))


def test_a_missed_target_is_told() -> None:
    rows = Prior.load().provenance["cross_validation"]
    assert shipped.missed(rows) == []
    assert shipped.missed([{**rows[0], "prior_five": 1.2}]) == [
        "spmv: the best of the first five is 1.200 times the best; at most 1.08 is wanted"
    ]
    assert shipped.missed([{**rows[0], "prior_five": math.nan}])


def test_differences_are_told() -> None:
    assert list(shipped.differences({"a": [1.0, 2]}, {"a": [1.5, 2]}, 0.1, "x")) == ["x/a/0: 1.5 is there, 1.0 is made"]
    assert list(shipped.differences({"a": "b"}, {}, 0.1, "x")) == ['x/a: null is there, "b" is made']
    assert not list(shipped.differences({"a": 1.05}, {"a": 1.0}, 0.1, "x"))


# --- The commands -----------------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `sparseditto` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def in_process(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            args = main.parser().parse_args(words)
            code = run_and_report("sparseditto", lambda: int(args.func(args)))
        except SystemExit as e:
            code = int(e.code or 0)
        return code, *capsys.readouterr()

    return in_process


def test_show_lists_the_strongest_weights(run: Run) -> None:
    code, out, _ = run("prior", "show", "--top", "5")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 7
    assert lines[0].startswith("learned from {trials} plans of {tasks} tasks".format(**Prior.load().provenance))
    assert all(("faster by" in line) != ("slower by" in line) for line in lines[1:-1])


def test_show_as_json_can_be_narrowed(run: Run) -> None:
    words = ("--op", "spmv", "--pass", "unroll", "--feature", "mean_row", "--top", "4", "--json")
    code, out, _ = run("prior", "show", *words)
    weights = json.loads(out)["weights"]
    assert code == 0
    assert len(weights) == 4
    assert all(w["op"] == SPMV and w["choice"].startswith("unroll") and w["feature"] == "mean_row" for w in weights)
    sizes = [abs(w["energy"]) for w in weights]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pass", "unrol"), "no pass 'unrol' has weights; did you mean 'unroll'?"),
        (("--feature", "mean_rows"), "no feature 'mean_rows' has weights; did you mean 'mean_row'?"),
        (("none.json",), "cannot be read"),
    ],
)
def test_show_refuses_what_there_is_not(words: tuple[str, ...], message: str, run: Run) -> None:
    code, out, err = run("prior", "show", *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A database of three matrices, and an export of it."""
    path = tmp_path / "t.sqlite3"
    key = TaskKey(Structure("", 500, 500, 15_000), spmv_operator(), (), "sm_90", H200, Compiler("0", "0", "0", "c"))
    with Database(path) as database:
        for n, mean in enumerate((4, 30, 60)):
            structure = Structure(f"pattern {n}", 500, 500, 500 * mean)
            number = database.begin(dataclasses.replace(key, structure=structure), matrix_features(500, mean).to_json())
            for lanes in LANES:
                database.add(number, plan(lanes), right(2 ** log_time(lanes, 4, mean)))
        (tmp_path / "t.jsonl").write_text("\n".join(lines(database)))
    return path


@pytest.mark.parametrize("source", [("--db", "t.sqlite3"), ("--data", "t.jsonl")])
def test_learn_writes_what_show_reads(source: tuple[str, str], run: Run, tuned: Path) -> None:
    assert len(entries_of(tuned)) == 3
    code, out, err = run("learn", *source, "--out", "mine.json", "--cross-validate")
    assert code == 0
    assert "fold 3 of 3" in err
    assert "wrote mine.json" in err
    assert out.splitlines()[0].split()[:3] == ["op", "K", "tasks"]
    assert out.splitlines()[1].split()[:3] == ["spmv", "all", "3"]
    prior = Prior.read(Path("mine.json"))
    assert prior.provenance["trials"] == 18
    assert set(prior.models) == {SPMV}
    with pytest.raises(InputError, match="learned nothing of spmm, only of spmv"):
        prior.energy(plan(8), SPMM_TASK, matrix_features(500, 30))
    code, out, _ = run("prior", "show", "mine.json", "--op", "spmv")
    assert code == 0
    assert "18 plans of 3 tasks" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--db", "none.sqlite3"), "there is no such database"),
        (("--data", "none.jsonl"), "cannot be read"),
        (("--db", "t.sqlite3", "--gpu", "A100"), "another GPU"),
        (("--db", "t.sqlite3", "--features", "none.jsonl"), "cannot be read"),
        (("--db", "t.sqlite3", "--penalty", "1", "--cross-validate"), "do not go together"),
        (("--db", "t.sqlite3", "--penalty", "0"), "no number above 0"),
    ],
)
@pytest.mark.usefixtures("tuned")
def test_learn_refuses_what_it_cannot_use(words: tuple[str, ...], message: str, run: Run) -> None:
    code, out, err = run("learn", *words, "--out", "mine.json")
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("mine.json").exists()


@pytest.mark.usefixtures("tuned")
def test_a_given_penalty_needs_no_families(run: Run) -> None:
    code, _, err = run("learn", "--db", "t.sqlite3", "--penalty", "10", "--out", "mine.json")
    assert code == 0
    assert "fold" not in err
    assert Prior.read(Path("mine.json")).provenance["penalties"] == {SPMV: 10.0}
