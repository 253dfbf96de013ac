"""The command line: exit codes, JSON, one clear message for every bad input, and faults that can be repeated."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import SHARED, matmul, matvec

from sparseditto.compiler.api import compile_file
from sparseditto.compiler.cli import main as sparseditto_main
from sparseditto.compiler.cli import opt
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.compiler.package import KernelPackage
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry

Run = Callable[..., "Outcome"]

ODD = SHARED / "data/odd"
THREADS = "set-encoding,accumulate-registers,rows-to-threads,map-blocks"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with kernels, a matrix and arrays; what faults leave behind goes below it too."""
    (tmp_path / "spmv.mlir").write_text(matvec())
    (tmp_path / "spmm.mlir").write_text(matmul())
    (tmp_path / "two.mlir").write_text(matvec() + "\n" + matvec().replace("@spmv", "@other"))
    a = sp.random_array((70, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    sp.save_npz(tmp_path / "a.npz", a)
    np.save(tmp_path / "x.npy", np.ones(50, np.float32))
    np.save(tmp_path / "b.npy", np.ones((50, 6)))
    (tmp_path / "faults").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "faults"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "faults"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `sparseditto` (or `ditto-opt`) in this process, without the child process that guards it."""

    def in_process(*words: str, program: str = "sparseditto") -> Outcome:
        capsys.readouterr()
        try:
            if program == "sparseditto":
                args = sparseditto_main.parser().parse_args(words)
                code = run_and_report(program, lambda: int(args.func(args)))
            else:
                args = opt.parser().parse_args(words)
                code = run_and_report(program, lambda: opt.command(args))
        except SystemExit as e:
            code = int(e.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return in_process


MODULES = {"sparseditto": "sparseditto.compiler.cli.main", "ditto-opt": "sparseditto.compiler.cli.opt"}


def start(program: str, *words: str, **options: Any) -> subprocess.Popen[str]:
    """Start a program as a process of its own."""
    command = [sys.executable, "-m", MODULES[program], *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def process(program: str, *words: str, **options: Any) -> Outcome:
    """Run a program to its end as a process of its own."""
    with start(program, *words, **options) as started:
        out, err = started.communicate(timeout=60)
    return Outcome(started.returncode, out, err)


def repeat(command: str) -> Outcome:
    """Run a command that a fault has named."""
    program, *words = shlex.split(command)
    return process(program, *words)


def reproduction(outcome: Outcome) -> str:
    (line,) = (line for line in outcome.err.splitlines() if line.startswith("  reproduce: "))
    return line.removeprefix("  reproduce: ")


# --- compile ------------------------------------------------------------------------------------------


def test_compile_writes_a_package(run: Run, folder: Path) -> None:
    done = run("compile", "spmm.mlir", "--bind", "A=a.npz", "--size", "K=8")
    assert (done.code, done.err) == (0, "")
    package = KernelPackage.load(folder / "spmm.ditto")
    assert package.sizes == {"d1": 8}
    for line in ("kernel: spmm (linalg.matmul) for sm_90", "matrix: 70 x 50, 350 entries", "plan: set-encoding{", "PTX: "):
        assert line in done.out
    assert Path(done.out.rsplit("PTX: ", 1)[1].strip()).read_text() == package.ptx


def test_compile_says_what_it_did_as_json(run: Run, folder: Path) -> None:
    done = run("compile", "spmm.mlir", "--bind", "A=a.npz", "--size", "K=8", "-o", "out", "--json")
    assert (done.code, done.err) == (0, "")
    data = done.json
    assert set(data) >= {"output", "ptx", "plan", "digest", "features", "seconds", "resources", "package"}
    assert data["output"] == "out"
    assert Path(data["ptx"]).read_text().startswith("//")
    assert Plan.from_json(data["package"]["plan"]).digest() == data["digest"]
    assert Plan.parse(data["plan"]).text() == data["plan"]
    assert data["features"]["entries"] == 350
    assert set(data["seconds"]) == {"plan", "compile"}
    assert data["package"] == json.loads((folder / "out/package.json").read_text())


def test_compile_without_a_matrix(run: Run) -> None:
    done = run("compile", "spmv.mlir", "--json")
    assert (done.code, done.json["features"]) == (0, None)


def test_a_plan_may_be_given_in_every_form(run: Run, folder: Path) -> None:
    first = run("compile", "spmv.mlir", "--plan", THREADS, "-o", "first", "--json")
    (folder / "plan.json").write_text(json.dumps(first.json["package"]["plan"]))
    for plan in ("first", "plan.json", first.json["plan"]):
        again = run("compile", "spmv.mlir", "--plan", plan, "-o", "again", "--json")
        assert again.code == 0, again.err
        assert again.json["plan"] == first.json["plan"]
        assert again.json["package"]["sha256"] == first.json["package"]["sha256"]


def test_stages_can_be_printed_and_written(run: Run, folder: Path) -> None:
    done = run("compile", "spmv.mlir", "--print-ir-after", "S2", "--print-ir-after=S5", "--dump-ir", "ir/deep")
    assert done.code == 0
    stages = [line for line in done.err.splitlines() if line.startswith("// -----// IR after")]
    assert stages == ["// -----// IR after S2 //----- //", "// -----// IR after S5 //----- //"]
    files = {path.name: path.read_text() for path in (folder / "ir/deep").iterdir()}
    assert set(files) == {"S0.mlir", "S1.mlir", "S2.mlir", "S3.mlir", "S4.mlir", "S5.ptx"}
    assert "linalg.matvec" in files["S0.mlir"]
    assert "#sparse_tensor.encoding" in files["S1.mlir"]
    assert "scf.for" in files["S2.mlir"]
    assert "scf.forall" in files["S3.mlir"]
    assert "gpu.func" in files["S4.mlir"]
    assert ".visible .entry spmv" in files["S5.ptx"]


def test_all_stages_can_be_printed(run: Run) -> None:
    done = run("compile", "spmv.mlir", "--print-ir-after", "all")
    assert re.findall(r"IR after (S\d)", done.err) == ["S0", "S1", "S2", "S3", "S4", "S5"]


def test_a_function_is_chosen_by_entry(run: Run, folder: Path) -> None:
    assert run("compile", "two.mlir", "--entry", "other").code == 0
    assert (folder / "other.ditto").is_dir()


def test_another_target(run: Run) -> None:
    done = run("compile", "spmv.mlir", "--target", "sm_80", "--json")
    assert (done.code, done.json["package"]["chip"]) == (0, "sm_80")


# --- run ----------------------------------------------------------------------------------------------


def test_run_compiles_runs_and_checks(run: Run) -> None:
    done = run("run", "spmm.mlir", "--bind", "A=a.npz", "--size", "K=6", "--device", "simt", "--check")
    assert (done.code, done.err) == (0, "")
    assert "ran on simt: output 70x6 float32" in done.out
    assert "check passed" in done.out


def test_run_says_what_it_did_as_json(run: Run) -> None:
    words = ("run", "spmm.mlir", "--bind", "A=a.npz", "--bind", "B=b.npy", "--device", "simt", "--json")
    checked = run(*words, "--check").json
    assert set(checked) >= {"device", "output", "check", "timing", "pack_seconds"}
    assert checked["device"] == "simt"
    assert checked["output"] == {"shape": [70, 6], "dtype": "float32"}
    assert checked["check"]["passed"] is True
    assert set(checked["check"]) == {"worst", "tolerance", "wrong", "components", "skipped", "first_wrong", "passed"}
    assert checked["timing"] is None
    assert run(*words).json["check"] is None


def test_the_result_is_written(run: Run, folder: Path) -> None:
    words = ("run", "spmm.mlir", "--bind", "A=a.npz", "--bind", "B=b.npy", "--device", "simt")
    assert run(*words, "--result", "c.npy").code == 0
    a = sp.load_npz(folder / "a.npz")
    assert np.allclose(np.load(folder / "c.npy"), a @ np.ones((50, 6)), atol=1e-5)


def test_values_depend_on_the_seed_alone(run: Run, folder: Path) -> None:
    for name, seed in (("1", 1), ("again", 1), ("2", 2)):
        done = run("run", "spmv.mlir", "--bind", "A=a.npz", "--device", "simt", "--seed", str(seed), "--result", f"{name}.npy")
        assert done.code == 0
    one, again, two = (np.load(folder / f"{name}.npy") for name in ("1", "again", "2"))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, two)


def tampered(folder: Path, before: str, after: str) -> KernelPackage:
    """A package of spmv.mlir whose kernel computes something else, with the hash that goes with it."""
    package = compile_file(folder / "spmv.mlir", plan=THREADS).package
    mlir = re.sub(before, after, package.mlir)
    assert mlir != package.mlir
    wrong = dataclasses.replace(package, mlir=mlir)
    wrong.save(folder / "wrong.ditto")
    return wrong


def test_a_wrong_result_fails_the_check(run: Run, folder: Path) -> None:
    tampered(folder, r"math\.fma (%\w+), (%\w+), (%\w+) : f32", r"arith.addf \1, \3 : f32")
    words = ("run", "wrong.ditto", "--bind", "A=a.npz", "--device", "simt")
    done = run(*words, "--check")
    assert done.code == 1
    assert "check FAILED: worst error" in done.out
    assert "first at (" in done.out
    assert done.err == ""
    assert run(*words, "--check", "--json").json["check"]["passed"] is False
    assert run(*words).code == 0, "without --check nothing is compared"
    assert process("sparseditto", *words, "--check").code == 1


def test_a_fault_in_the_kernel_fails_the_check(run: Run, folder: Path) -> None:
    tampered(folder, r"arith\.cmpi ult", "arith.cmpi uge")
    done = run("run", "wrong.ditto", "--bind", "A=a.npz", "--device", "simt")
    assert done.code == 1
    assert done.err.startswith("sparseditto: check-failed: spmv: ")
    assert "A.positions1" in done.err
    assert "Traceback" not in done.err


# --- passes -------------------------------------------------------------------------------------------


def test_passes_are_listed(run: Run) -> None:
    done = run("passes")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == [
        c.name for c in sorted(registry().values(), key=lambda c: (c.kind.value, c.name))
    ]


def test_passes_are_data(run: Run) -> None:
    data = run("passes", "--json").json
    assert {entry["name"] for entry in data} == set(registry())
    keys = {"name", "kind", "summary", "options", "relieves", "consumes", "requires", "provides", "removes", "excludes"}
    assert all(set(entry) >= keys for entry in data)
    (unroll,) = run("passes", "unroll", "--json").json
    factor = next(option for option in unroll["options"] if option["name"] == "factor")
    assert factor == {
        "name": "factor",
        "type": "int",
        "default": 4,
        "choices": [1, 2, 4, 8, 16],
        "help": "iterations at a time",
    }
    assert unroll["requires"] == ["register_accumulation"]


@pytest.mark.parametrize("name", sorted(registry()))
def test_every_pass_is_described(name: str, run: Run) -> None:
    done = run("passes", name)
    assert done.code == 0
    assert done.out.startswith(f"{name} (")
    assert "Before::" in done.out
    assert "After" in done.out


PLUGIN = '''
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from sparseditto.passes.base import SchedulePass, Bottleneck
from sparseditto.passes.registry import register

@register
@dataclass(frozen=True)
class Faulty(SchedulePass):
    """Fail, as code with a mistake does."""
    name: ClassVar[str] = "faulty-pass"
    relieves = (Bottleneck.ISSUE,)

    def run(self, nest, target):
        raise RuntimeError("a mistake in a pass")
'''


@pytest.fixture
def plugin(folder: Path) -> Path:
    (folder / "faulty.py").write_text(PLUGIN)
    return folder / "faulty.py"


def test_loaded_passes_are_listed(plugin: Path) -> None:
    done = process("sparseditto", "passes", "--load", str(plugin), "faulty-pass")
    assert done.code == 0
    assert "Fail, as code with a mistake does." in done.out


# --- Bad input ----------------------------------------------------------------------------------------

SPMV = ("spmv.mlir", "--bind", "A=a.npz")
BAD_INPUT: dict[str, tuple[tuple[str, ...], str]] = {
    "text that does not parse": (("compile", "bad.mlir"), r"bad-input: bad\.mlir:1:\d+: custom op 'hello' is unknown"),
    "ir that does not verify": (("compile", "unverified.mlir"), r"bad-input: unverified\.mlir:\d+:\d+: .*use of value"),
    "no such file": (("compile", "nowhere.mlir"), r"bad-input: nowhere\.mlir: cannot be read: No such file"),
    "a folder that is no package": (("run", "faults", "--device", "simt"), "bad-input: faults: is no kernel package"),
    "an unknown operand": (("compile", "spmv.mlir", "--bind", "B=a.npz"), "no operand 'B'; it has A, x, y"),
    "no binding": (("compile", "spmv.mlir", "--bind", "a.npz"), "'a.npz' is no binding; write OPERAND=FILE"),
    "an operand bound twice": (("compile", *SPMV, "--bind", "A=a.npz"), "'A' is bound twice"),
    "a matrix that is not there": (("compile", "spmv.mlir", "--bind", "A=no.mtx"), r"bad-input: no\.mtx: cannot be read"),
    "a matrix that is none": (("compile", "spmv.mlir", "--bind", "A=bad.mtx"), r"bad-input: bad\.mtx.*"),
    "an array that is none": (("run", *SPMV, "--bind", "x=a.npz", "--device", "simt"), "'x' is dense: bind a .npy file"),
    "shapes that do not agree": (
        ("run", *SPMV, "--bind", "y=x.npy", "--device", "simt"),
        "what is bound to 'y' gives size 50, but what is bound to 'A' gives 70",
    ),
    "a size that does not agree": (("compile", *SPMV, "--size", "M=7"), "--size M gives size 7, but what is bound"),
    "an unknown size": (("compile", *SPMV, "--size", "Q=7"), "no size is named 'Q'; there are d0, d1, M, N"),
    "no size": (("compile", *SPMV, "--size", "7"), "'7' is no size; write NAME=NUMBER"),
    "a size that is missing": (
        ("run", "spmm.mlir", "--bind", "A=a.npz", "--device", "simt"),
        "the size of dimension 1 of 'B' is not known; .* --size K=",
    ),
    "a matrix that is missing": (("run", "spmv.mlir", "--device", "simt"), "bind a matrix to 'A'"),
    "an op that is not compiled": (("compile", "dot.mlir"), r"unsupported: dot\.mlir:\d+:\d+: .*"),
    "a type that is not compiled": (("compile", "f8.mlir"), r"unsupported: f8\.mlir:\d+:\d+: element type f8E5M2 is not"),
    "several functions": (("compile", "two.mlir"), r"two\.mlir: has several functions \(spmv, other\); choose one with"),
    "an unknown function": (("compile", "two.mlir", "--entry", "othr"), "has no function 'othr'; did you mean 'other'"),
    "an unknown pass": (("compile", "spmv.mlir", "--plan", "set-encodin"), "bad-plan: .*did you mean 'set-encoding'"),
    "an unknown pass option": (
        ("compile", "spmv.mlir", "--plan", "set-encoding{formt=csr}"),
        "bad-plan: set-encoding: no option 'formt'; did you mean 'format'",
    ),
    "a value out of its domain": (
        ("compile", "spmv.mlir", "--plan", "set-encoding{format=ell}"),
        "bad-plan: set-encoding: format=ell is not one of",
    ),
    "a plan that does not apply": (
        ("compile", "spmv.mlir", "--plan", THREADS.replace("set-encoding", "set-encoding{format=csc}")),
        "not-applicable: accumulate-registers: .*",
    ),
    "an incomplete plan": (("compile", "spmv.mlir", "--plan", "set-encoding"), "(bad-plan|not-applicable): .*map-blocks"),
    "an empty plan": (("compile", "spmv.mlir", "--plan", ""), "bad-plan: .*add set-encoding"),
    "a plan that is no JSON": (("compile", "spmv.mlir", "--plan", "bad.json"), r"bad-plan: bad\.json: is not JSON"),
    "a plan that is not there": (("compile", "spmv.mlir", "--plan", "no.json"), r"bad-input: no\.json: cannot be read"),
    "a plan for another kernel": (
        ("compile", "spmv.mlir", "--plan", "other.json"),
        "bad-plan: the plan is for kernel 0123456789ab, this one is",
    ),
    "an unknown target": (("compile", "spmv.mlir", "--target", "sm_9"), "'sm_9' is no known target; did you mean 'sm_90'"),
    "an unknown stage": (("compile", "spmv.mlir", "--print-ir-after", "S9"), "no stage is named 'S9'.*; there are S0"),
    "an output below a file": (("compile", "spmv.mlir", "-o", "spmm.mlir/p"), "spmm.mlir/p: (cannot write|exists)"),
    "an output that is a file": (("compile", "spmv.mlir", "-o", "spmm.mlir"), "spmm.mlir: exists and is no kernel package"),
    "an output that is somebody's": (("compile", "spmv.mlir", "-o", "mine"), "mine: exists and is no kernel package"),
    "ir that cannot be written": (("compile", "spmv.mlir", "--dump-ir", "spmm.mlir"), "spmm.mlir: cannot write there"),
    "a result that cannot be written": (
        ("run", *SPMV, "--device", "simt", "--json", "--result", "no/where.npy"),
        "no/where.npy: cannot write there: No such file",
    ),
    "a plug-in that is not there": (("compile", "spmv.mlir", "--load", "no.py"), "no.py: is no Python file to load"),
    "a plug-in that fails": (("compile", "spmv.mlir", "--load", "bad.py"), "bad.py: cannot be loaded: ZeroDivisionError"),
    "a pass to describe": (("passes", "unrol"), "bad-plan: no pass is named 'unrol'; did you mean 'unroll'"),
    "an unknown device": (("run", *SPMV, "--device", "tpu"), "bad-input: argument --device: invalid choice: 'tpu'"),
    "an unknown command": (("complie", "spmv.mlir"), "bad-input: argument COMMAND: invalid choice: 'complie'"),
    "no command": ((), "bad-input: the following arguments are required: COMMAND"),
    "no kernel": (("compile",), "bad-input: the following arguments are required: kernel"),
    "an unknown option": (("compile", "spmv.mlir", "--bnd", "A=a.npz"), "--bnd"),
    "a seed that is no number": (("run", *SPMV, "--seed", "x"), "bad-input: argument --seed: 'x' is no number from 0 on"),
}


@pytest.fixture
def bad_files(folder: Path) -> None:
    (folder / "bad.mlir").write_text("hello")
    (folder / "unverified.mlir").write_text(matvec().replace("return %r", "return %A"))
    (folder / "f8.mlir").write_text(matvec("f8E5M2"))
    dot = "ins(%A, %x : tensor<?xf32>, tensor<?xf32>) outs(%y : tensor<f32>) -> tensor<f32>"
    (folder / "dot.mlir").write_text(
        f"""func.func @f(%A: tensor<?xf32> {{ditto.sparse}}, %x: tensor<?xf32>, %y: tensor<f32>) -> tensor<f32> {{
  %r = linalg.dot {dot}
  return %r : tensor<f32>
}}"""
    )
    (folder / "bad.mtx").write_text("hello")
    (folder / "bad.json").write_text("{")
    (folder / "bad.py").write_text("1 / 0")
    (folder / "other.json").write_text(json.dumps(Plan.parse(THREADS, "0123456789ab").to_json()))
    (folder / "mine").mkdir()
    (folder / "mine/thesis.tex").write_text("precious")


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_explained(name: str, run: Run, folder: Path) -> None:
    words, message = BAD_INPUT[name]
    before = everything(folder)
    done = run(*words)
    assert done.code == 2, done
    lines = done.err.splitlines()
    assert lines
    told = [line for line in lines if re.match(r"sparseditto( \w+)?: ", line)]
    assert len(told) == 1, "one message"
    assert re.search(message, done.err.replace("\n", " ")), done.err
    assert "Traceback" not in done.err
    assert "internal fault" not in done.err
    assert everything(folder) == before, "nothing is left behind"
    if "--json" in words:
        assert done.out == ""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("--bnd", "--bind"), ("--plam", "--plan"), ("--outputt", "--output"), ("--dump-irs", "--dump-ir"), ("--jason", "--json")],
)
def test_an_unknown_option_gets_a_suggestion(typed: str, meant: str, run: Run) -> None:
    done = run("compile", "spmv.mlir", typed)
    assert done.code == 2
    assert f"did you mean '{meant}'" in done.err


def test_an_unknown_command_gets_a_suggestion(run: Run) -> None:
    assert "compile" in run("complie", "spmv.mlir").err


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize(
    "name", ["text that does not parse", "an unknown pass", "an unknown option", "an output that is a file"]
)
def test_the_process_ends_the_same_way(name: str) -> None:
    words, message = BAD_INPUT[name]
    done = process("sparseditto", *words)
    assert (done.code, done.out) == (2, "")
    assert re.search(message, done.err)
    assert "Traceback" not in done.err


def odd_files() -> list[Any]:
    if not ODD.is_dir():
        return [pytest.param("", "", marks=pytest.mark.skip(reason=f"there is no {ODD}"))]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (ODD / "ODD.md").read_text().splitlines()]
    return [(row[0], row[3]) for row in rows if len(row) == 5 and (ODD / row[0]).is_file()]


@pytest.mark.parametrize(("name", "verdict"), odd_files())
def test_odd_files(name: str, verdict: str, run: Run) -> None:
    done = run("run", "spmv.mlir", "--bind", f"A={ODD / name}", "--device", "simt", "--check")
    assert done.code in (0, 2), done.err
    if verdict.startswith("accept") and "reject" not in verdict:
        assert done.code == 0, done.err
    if verdict.startswith("reject") and "or " not in verdict:
        assert done.code == 2, done.out
    assert "Traceback" not in done.err
    if done.code == 2:
        assert done.err.startswith(f"sparseditto: bad-input: {ODD / name}"), done.err
        assert len(done.err.splitlines()) == 1
    else:
        assert "check passed" in done.out


# --- ditto-opt ----------------------------------------------------------------------------------------


def test_ditto_opt_mixes_passes(run: Run) -> None:
    pipeline = "set-encoding{format=dcsr},func.func(linalg-generalize-named-ops,canonicalize),cse"
    done = run("spmv.mlir", "-p", pipeline, program="ditto-opt")
    assert done.code == 0
    assert "compressed, d1 : compressed" in done.out
    assert "linalg.generic" in done.out


def test_ditto_opt_reads_standard_input_and_writes_a_file(folder: Path) -> None:
    with (folder / "spmv.mlir").open() as text:
        done = process("ditto-opt", "-", "-p", "set-encoding", "-o", "out.mlir", stdin=text)
    assert (done.code, done.out) == (0, "")
    assert "sparse_tensor.encoding" in (folder / "out.mlir").read_text()


BAD_PIPELINES = {
    "canonicalise": "bad-plan: no pass is named 'canonicalise'; did you mean 'canonicalize'",
    "canonicalize{max-iteration=1}": "bad-plan: .*max-iteration",
    "canonicalize,": "bad-plan: pipeline: a pass name is missing",
    "func.func(cse": r"bad-plan: pipeline: '\)' is missing",
    "gpu.module(func-bufferize)": "bad-plan: no pass is named 'func-bufferize'",
    "unroll{factor=3}": r"bad-plan: unroll: factor=3 is not one of \(1, 2, 4, 8, 16\)",
    "map-blocks": "(not-applicable|unsupported): map-blocks: there is no loop nest",
}


@pytest.mark.parametrize("pipeline", BAD_PIPELINES)
def test_ditto_opt_refuses_bad_pipelines(pipeline: str, run: Run, folder: Path) -> None:
    before = everything(folder)
    done = run("spmv.mlir", "-p", pipeline, "-o", "out.mlir", program="ditto-opt")
    assert (done.code, done.out) == (2, "")
    assert re.search(BAD_PIPELINES[pipeline], done.err.replace("\n", " ")), done.err
    assert "Traceback" not in done.err
    assert everything(folder) == before


# --- Faults -------------------------------------------------------------------------------------------

ABORTS = "func.func @f(%a: memref<4xf32, #gpu.address_space<global>>) {\n  return\n}\n"


def test_an_assertion_in_mlir_is_a_fault_that_can_be_repeated(folder: Path) -> None:
    (folder / "aborts.mlir").write_text(ABORTS)
    done = process("ditto-opt", "aborts.mlir", "-p", "cse,convert-func-to-llvm")
    assert done.code == 3
    assert "ditto-opt: internal fault: the compiler was ended by SIGABRT" in done.err
    command = reproduction(done)
    assert command.startswith("ditto-opt ")
    again = repeat(command)
    assert again.code == 3
    assert "SIGABRT" in again.err
    assert "memref<4xf32, #gpu.address_space<global>>" in Path(shlex.split(command)[-1]).read_text()


def test_a_step_that_fails_can_be_repeated(folder: Path) -> None:
    (folder / "dynamic.mlir").write_text(
        "#E = #sparse_tensor.encoding<{ map = (i, j) -> (i : dense, j : compressed) }>\n"
        "func.func @f(%A: tensor<?x?xf32, #E>) -> tensor<?x?xf32, #E> { return %A : tensor<?x?xf32, #E> }"
    )
    done = process("ditto-opt", "dynamic.mlir", "-p", "sparse-assembler")
    assert done.code == 3
    assert re.search(r"ditto-opt: step-failed: dynamic\.mlir:2:1: sparse-assembler: .*static shape", done.err)
    again = repeat(reproduction(done))
    assert again.code == 3
    assert "static shape" in again.err


def test_a_mistake_in_a_pass_is_a_fault_that_can_be_repeated(plugin: Path) -> None:
    plan = THREADS.replace(",rows", ",faulty-pass,rows")
    done = process("sparseditto", "compile", "spmv.mlir", "--plan", plan, "--load", str(plugin), "-o", "p.ditto")
    assert done.code == 3
    assert "step-failed: faulty-pass: RuntimeError: a mistake in a pass" in done.err
    assert "Traceback" not in done.err
    assert not Path("p.ditto").exists()
    again = repeat(reproduction(done))
    assert again.code == 3, again.err
    assert "a mistake in a pass" in again.err


def test_the_target_is_part_of_the_reproduction(plugin: Path) -> None:
    plugin.write_text(PLUGIN.replace('"a mistake in a pass"', "target.chip"))
    plan = THREADS.replace(",rows", ",faulty-pass,rows")
    done = process("sparseditto", "compile", "spmv.mlir", "--plan", plan, "--load", str(plugin), "--target", "sm_80")
    assert "RuntimeError: sm_80" in done.err
    assert "RuntimeError: sm_80" in repeat(reproduction(done)).err


def test_any_other_mistake_is_a_fault_with_its_traceback_kept(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake in the compiler")

    monkeypatch.setattr("sparseditto.compiler.api.compile_file", mistaken)
    monkeypatch.setattr(sys, "argv", ["sparseditto", "compile", "spmv.mlir", "--size", "K = 1"])
    done = run("compile", "spmv.mlir")
    assert done.code == 3
    assert "sparseditto: internal fault: RuntimeError: a mistake in the compiler (see " in done.err
    assert reproduction(done) == "sparseditto compile spmv.mlir --size 'K = 1'"
    (kept,) = (folder / "faults").rglob("traceback.txt")
    assert "in mistaken" in kept.read_text()


# --- Signals and pipes --------------------------------------------------------------------------------


@pytest.fixture
def long_run(folder: Path) -> list[str]:
    """The words of a run that takes half a minute."""
    a = sp.random_array((4000, 4000), density=0.05, rng=np.random.default_rng(0), format="csr")
    sp.save_npz(folder / "big.npz", a)
    return ["run", "spmm.mlir", "--bind", "A=big.npz", "--size", "K=4096", "--device", "simt", "--plan", THREADS]


def seconds_used(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_until_it_runs(started: subprocess.Popen[str]) -> int:
    """Wait until the kernel runs (compiling takes no two seconds of a processor); the process that runs it."""
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    assert ends_within(lambda: bool(children.read_text()), 10.0)
    child = int(children.read_text())
    assert ends_within(lambda: seconds_used(child) > 2.0, 20.0)
    assert started.poll() is None
    return child


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ends_within(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_ctrl_c_ends_a_run(long_run: list[str]) -> None:
    with start("sparseditto", *long_run, start_new_session=True) as started:
        child = wait_until_it_runs(started)
        sent = time.monotonic()
        os.killpg(started.pid, signal.SIGINT)
        _, err = started.communicate(timeout=30)
        assert time.monotonic() - sent < 2.5
    assert started.returncode == 130
    assert err.splitlines() == ["sparseditto: interrupted"]
    assert gone(child)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_program_alone_ends_its_child_too(number: signal.Signals, long_run: list[str]) -> None:
    with start("sparseditto", *long_run, start_new_session=True) as started:
        child = wait_until_it_runs(started)
        started.send_signal(number)
        try:
            assert ends_within(lambda: started.poll() is not None, 2.5), "the program goes on"
            assert ends_within(lambda: gone(child), 1.0), "the run goes on without its program"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
    assert started.returncode in (130, 143, -number)


def test_a_reader_that_goes_away_is_no_fault(folder: Path) -> None:
    shell = f"{shlex.quote(sys.executable)} -m {MODULES['sparseditto']} passes | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("words", [("passes",), ("compile", "spmv.mlir", "--print-ir-after", "all"), ("--help",)])
def test_streams_that_are_closed_are_no_fault(words: tuple[str, ...], folder: Path) -> None:
    shell = (
        f"{shlex.quote(sys.executable)} -m {MODULES['sparseditto']} {shlex.join(words)} 2>&1 | true; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "1", "120", "141"), "the program itself decides, but no traceback shows"


# --- Help ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("compile",), ("run",), ("passes",)])
def test_help_names_every_option(words: tuple[str, ...], run: Run) -> None:
    done = run(*words, "--help")
    assert (done.code, done.err) == (0, "")
    if words:
        for option in {"compile": ("--bind", "--plan", "--json"), "run": ("--check", "--device"), "passes": ("--load",)}[
            words[0]
        ]:
            assert option in done.out


def test_the_version(run: Run) -> None:
    assert re.fullmatch(r"sparseditto \d+\.\d+\.\d+\S*\n", run("--version").out)


def test_scripts_are_installed() -> None:
    for name in MODULES:
        assert (Path(sys.executable).parent / name).is_file()


# --- Odd surroundings ----------------------------------------------------------------------------------


def test_an_entry_cannot_choose_the_folder(run: Run, folder: Path) -> None:
    (folder / "odd.mlir").write_text(matvec().replace("@spmv(", '@"../../out"('))
    found = run("compile", "odd.mlir", "--bind", "A=a.npz", "--json")
    assert found.code == 0
    assert Path(json.loads(found.out)["output"]).parent == Path()
    assert list(folder.glob("*out.ditto"))


@pytest.mark.parametrize("words", [["--plan", "rows-to-threads"], ["--entry", "spmv"], ["--dump-ir", "there"]])
def test_options_of_the_compiler_are_not_for_a_package(run: Run, folder: Path, words: list[str]) -> None:
    (folder / "k.mlir").write_text(matvec())
    assert run("compile", "k.mlir", "--bind", "A=a.npz", "-o", "p").code == 0
    refused = run("run", "p", "--bind", "A=a.npz", "--device", "simt", *words)
    assert refused.code == 2
    assert words[0] in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--time", "5"], "only a GPU is timed"),
        (["--time", "-4"], "no number from 0 on"),
        (["--seed", "-1"], "no number from 0 on"),
        (["--size", "N=99999999999999999999"], "gives a size of"),
    ],
)
def test_numbers_out_of_their_range(run: Run, folder: Path, words: list[str], message: str) -> None:
    (folder / "k.mlir").write_text(matvec())
    refused = run("run", "k.mlir", "--bind", "A=a.npz", "--device", "simt", *words)
    assert refused.code == 2
    assert message in refused.err


def test_records_are_not_written_into_another_file(run: Run, folder: Path) -> None:
    (folder / "k.mlir").write_text(matvec())
    before = (folder / "a.npz").read_bytes()
    refused = run("tune", "k.mlir", "--bind", "A=a.npz", "--budget", "2", "--device", "simt", "--db", "a.npz")
    assert refused.code == 2
    assert "a.npz: cannot be used as a tuning database (file is not a database)" in refused.err
    assert (folder / "a.npz").read_bytes() == before


def test_text_that_is_no_utf8_on_standard_input(folder: Path) -> None:
    command = [sys.executable, "-m", MODULES["ditto-opt"], "-"]
    found = subprocess.run(command, input=b"\xff\xfe", capture_output=True, check=False, timeout=60)
    assert found.returncode == 2
    assert b"is not text" in found.stderr


def test_a_stream_that_knows_ascii_only(folder: Path) -> None:
    (folder / "k.mlir").write_text(matvec())
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = process("sparseditto", "run", "k.mlir", "--bind", "A=a.npz", "--device", "simt", "--check", env=environment)
    assert found.code == 0
    assert "check passed" in found.out


def test_a_crash_on_standard_input_is_repeated(folder: Path) -> None:
    (folder / "k.mlir").write_text(matvec())
    (folder / "abrt.py").write_text(
        "import os\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from sparseditto.passes.base import Kind, LoweringPass\nfrom sparseditto.passes.registry import register\n"
        "@register\n@dataclass(frozen=True)\nclass Abrt(LoweringPass):\n    'Abort.'\n    name: ClassVar[str] = 'abrt'\n"
        "    kind = Kind.LOWERING\n    def apply(self, module, target):\n        os.abort()\n"
    )
    with (folder / "k.mlir").open() as stdin:
        found = process("ditto-opt", "--load", "abrt.py", "-p", "set-encoding,abrt", stdin=stdin)
    assert found.code == 3
    command = reproduction(found)
    assert "abrt" in command
    assert "set-encoding" not in command
    assert repeat(command).code == 3
