"""`sparseditto explain`: what it says agrees with the model, the database and the planner, and bad input is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul, matvec
from memories import H200, RIGHT

from sparseditto.agent.architecture.building import named
from sparseditto.agent.cost import LIMITS, predict
from sparseditto.agent.features import analyse
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.keys import Gpu
from sparseditto.agent.memory.trial import Measurement
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.cli import main
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.compiler.driver import make_task
from sparseditto.compiler.kernel import read_kernel
from sparseditto.compiler.problem import Problem, bind
from sparseditto.compiler.task_keys import task_key
from sparseditto.dialects.binding import context
from sparseditto.passes.plan import Plan

THREADS = "set-encoding,accumulate-registers,rows-to-threads,map-blocks"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `sparseditto explain` in this process, in a folder with kernels and a matrix."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARSEDITTO_DB", "t.sqlite3")
    (tmp_path / "spmv.mlir").write_text(matvec())
    (tmp_path / "spmm.mlir").write_text(matmul())
    a = sp.random_array((700, 500), density=0.1, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    sp.save_npz(tmp_path / "a.npz", a)

    def in_process(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            args = main.parser().parse_args(["explain", *words])
            code = run_and_report("sparseditto", lambda: int(args.func(args)))
        except SystemExit as e:
            code = int(e.code or 0)
        return code, *capsys.readouterr()

    return in_process


def told(run: Run, *words: str) -> dict[str, Any]:
    code, out, _ = run(*words, "--json")
    assert code == 0
    return dict(json.loads(out))


def problem(kernel: str, **sizes: int) -> Problem:
    with context():
        computation = read_kernel(kernel).computation
    return bind(computation, {"A": "a.npz"}, sizes)


def test_it_tells_the_planners_plan_with_its_cost(run: Run) -> None:
    found = told(run, "spmm.mlir", "--bind", "A=a.npz", "--size", "K=64")
    task, features = make_task(problem(matmul(), K=64))
    assert features is not None
    first, rival_plan, *_ = Ranking(Space(Context(task, features, named("h200").target()))).best_first()
    assert (found["origin"], found["plan"], found["gpu"]) == ("planner", first.text(), "H200 SXM")
    cost = predict(first, task, features, named("h200"))
    assert found["cost"] == json.loads(json.dumps(cost.to_json()))
    assert found["runner_up"]["plan"] == rival_plan.text()
    assert found["runner_up"]["cost"]["total_us"] == predict(rival_plan, task, features, named("h200")).total_us
    difference = found["runner_up"]["difference_us"]
    rival = found["runner_up"]["cost"]["times_us"]
    assert difference == {name: pytest.approx(rival[name] - cost.times_us[name]) for name in LIMITS}
    assert found["measured"] == []
    assert found["features"] == features.to_json()


def test_a_feature_matters_by_what_follows_from_it(run: Run) -> None:
    found = told(run, "spmm.mlir", "--bind", "A=a.npz", "--size", "K=64", "--plan", THREADS)
    changes = [abs(s["change"]) for s in found["sensitivities"]]
    assert changes == sorted(changes, reverse=True)
    by_name = {s["name"]: s for s in found["sensitivities"]}
    assert by_name["max_row"]["value"] == analyse(sp.csr_array(sp.load_npz("a.npz"))).max_row
    assert by_name["max_row"]["change"] > 0


def test_walks_lead_to_cheaper_plans(run: Run) -> None:
    found = told(run, "spmm.mlir", "--bind", "A=a.npz", "--size", "K=64", "--plan", THREADS)
    assert found["origin"] == "given"
    assert found["walks"]
    assert {walk["bottleneck"] for walk in found["walks"]} == {found["cost"]["bottleneck"]}
    assert all(set(walk["passes"]) <= set(found["relieving"]) for walk in found["walks"])
    assert found["walks"][0]["us"] < found["cost"]["total_us"]
    for walk in found["walks"]:
        Plan.parse(walk["plan"])


def suggested(run: Run, *words: str) -> tuple[float, list[str]]:
    """What is predicted of a plan, and the lines under what relieves its limit."""
    code, out, _ = run(*words, "--bind", "A=a.npz")
    assert code == 0
    return float(out.split("predicted: ")[1].split()[0]), out.split("relieved by: ")[1].split("\n\n")[0].splitlines()[1:]


def test_steps_that_change_nothing_are_not_suggested(run: Run) -> None:
    """A launch that nothing shortens has no step under it; of a poor plan each that is listed is predicted to be faster."""
    assert suggested(run, "spmv.mlir")[1] == ["  no step by one of them is predicted to make it faster"]
    total, steps = suggested(run, "spmm.mlir", "--size", "K=64", "--plan", THREADS)
    assert steps
    assert all(float(step.removesuffix(" us predicted").rsplit(" ", 1)[1]) < total for step in steps)


def test_it_tells_what_was_measured_of_the_plan(run: Run) -> None:
    bound = problem(matvec())
    plan = Plan.parse(THREADS, make_task(bound)[0].kernel)
    with Database(Path("t.sqlite3")) as database:
        for gpu, us in ((H200, (4.0, 5.0, 6.0)), (Gpu("emulator", ""), (1000.0,))):
            number = database.begin(task_key(bound, "sm_90", gpu))
            database.add(number, plan, Measurement("ok", us, check=RIGHT))
    found = told(run, "spmv.mlir", "--bind", "A=a.npz")
    assert (found["origin"], found["plan"]) == ("database", plan.text())
    assert found["measured"] == [{"gpu": "NVIDIA H200", "us": 5.0, "samples": 3, "current": True}]
    code, out, _ = run("spmv.mlir", "--bind", "A=a.npz")
    assert code == 0
    assert "measured: 5.00 us on NVIDIA H200, the median of 3" in out
    assert "from: the tuning database" in out
    other = told(run, "spmv.mlir", "--bind", "A=a.npz", "--plan", THREADS.replace("map-blocks", "map-blocks{threads=64}"))
    assert other["measured"] == []
    assert told(run, "spmv.mlir", "--bind", "A=a.npz", "--no-db")["origin"] == "planner"


def test_another_gpu_gets_a_plan_without_being_there(run: Run) -> None:
    big = f"{THREADS}{{threads=1024}},bound-launch{{blocks=2}}"  # a T4 holds 1024 threads
    found = told(run, "spmv.mlir", "--bind", "A=a.npz", "--plan", big, "--gpu", "t4", "--gpu", "b200")
    t4, b200 = found["elsewhere"]
    assert (t4["gpu"], t4["chip"]) == ("T4", "sm_75")
    assert t4["refused"] == ["warps: 2 blocks on a multiprocessor are needed, 1 are there"]
    assert "launch.graph_period" in t4["cost"]["assumed"]
    assert (b200["chip"], b200["refused"]) == ("sm_100", [])
    code, out, _ = run("spmv.mlir", "--bind", "A=a.npz", "--gpu", "t4")
    assert code == 0
    assert "not known of it, and taken from the calibrated GPU: launch.graph_period" in out


def test_the_text_has_a_bar_for_each_resource_that_is_busy(run: Run) -> None:
    code, out, err = run("spmm.mlir", "--bind", "A=a.npz", "--size", "K=64")
    assert code == 0
    cost = told(run, "spmm.mlir", "--bind", "A=a.npz", "--size", "K=64")["cost"]
    for name, (_, text) in LIMITS.items():
        line = next((line for line in out.splitlines() if line.endswith(f" {text}")), "")
        assert line.startswith(f"  {name}") == (cost["times_us"][name] > 0)
    longest = next(line for line in out.splitlines() if line.startswith(f"  {cost['limit']} "))
    assert longest.count("#") == 40
    assert f"limit: {cost['limit']}, a bottleneck of {cost['bottleneck']} at" in out
    assert "sm_90 is taken to be the H200 SXM" in err


def test_a_target_is_a_chip_or_a_gpu(run: Run) -> None:
    assert told(run, "spmv.mlir", "--bind", "A=a.npz", "--target", "GeForce RTX 4090")["chip"] == "sm_89"
    assert told(run, "spmv.mlir", "--bind", "A=a.npz", "--target", "sm_70")["gpu"] == "V100"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no matrix is known; a cost needs its features (--bind A=FILE)"),
        (("--bind", "A=a.npz"), "the number of dense columns is not known; a cost needs it (--size K=64)"),
        (("--bind", "A=a.npz", "--size", "K=64", "--target", "sm_91"), "'sm_91' is no known target; did you mean 'sm_90'"),
        (("--bind", "A=a.npz", "--size", "K=64", "--gpu", "h2000"), "'h2000' is no known GPU"),
        (("--bind", "A=a.npz", "--size", "K=64", "--db", "none.sqlite3"), "there is no such database (--db)"),
        (
            ("--bind", "A=a.npz", "--size", "K=64", "--plan", f"{THREADS}{{threads=1024}},bound-launch{{blocks=3}}"),
            "3 blocks on a multiprocessor are needed, 2 are there",
        ),
    ],
)
def test_what_is_wrong_is_said(run: Run, words: tuple[str, ...], message: str) -> None:
    code, out, err = run("spmm.mlir", *words)
    assert (code, out) == (2, "")
    assert message in err
