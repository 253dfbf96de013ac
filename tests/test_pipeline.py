"""Running pipelines that mix our passes with upstream's: order, checks before any IR is touched, and what a failure leaves."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import matvec
from mlir import ir

from sparseditto.compiler import pipeline
from sparseditto.compiler.pipeline import captured_stderr, plan_steps, run_items, run_pass, run_upstream
from sparseditto.dialects.binding import parse_module
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError, StepFailed
from sparseditto.dialects.target import Target
from sparseditto.passes.base import FunctionPass, Kind
from sparseditto.passes.pipeline_text import parse_pipeline
from sparseditto.passes.registry import find
from sparseditto.passes.upstream import upstream_names

pytestmark = pytest.mark.usefixtures("mlir_context")


@pytest.fixture(autouse=True)
def failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where failures are left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def run(module: ir.Module, text: str) -> str:
    run_items(module, parse_pipeline(text), Target())
    return str(module)


# --- Steps --------------------------------------------------------------------------------------------


def steps(text: str) -> list[str]:
    return [str(step) for step in plan_steps(parse_pipeline(text))]


SET = "set-encoding{format=csr positions=32 coordinates=32 block-rows=4 block-columns=4}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cse", ["cse"]),
        ("cse,canonicalize", ["cse,canonicalize"]),
        ("cse,set-encoding,canonicalize,cse", ["cse", SET, "canonicalize,cse"]),
        ("func.func(cse),canonicalize", ["func.func(cse),canonicalize"]),
        ("builtin.module(cse)", ["cse"]),
        ("builtin.module(cse,set-encoding),cse", ["cse", SET, "cse"]),
        ("builtin.module(func.func(cse))", ["func.func(cse)"]),
        ("func.func(set-encoding)", [SET]),
        ("func.func(cse,set-encoding,canonicalize)", ["func.func(cse)", SET, "func.func(canonicalize)"]),
        ("canonicalize{max-iterations=3}", ["canonicalize{max-iterations=3}"]),
        ("sparsification{parallelization-strategy=none}", ["sparsification{parallelization-strategy=none}"]),
    ],
)
def test_neighbouring_upstream_passes_share_a_step(text: str, expected: list[str]) -> None:
    assert steps(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cse,canonicalise", "no pass is named 'canonicalise'; did you mean 'canonicalize'"),
        ("set-encodings", "no pass is named 'set-encodings'; did you mean 'set-encoding'"),
        ("func.func(cse,xyzzy)", "no pass is named 'xyzzy'$"),
        ("set-encoding{x=1}", "no option 'x'"),
        ("set-encoding{format=x}", "format=x is not one of"),
        ("canonicalize{max-iterations=many}", "max-iterations"),
        ("canonicalize{no-such-option=1}", "no-such-option"),
        ("no.such.op(cse,", "is missing"),
        ("convert-gpu-to-nvvm{index-bitwidth=x}", "index-bitwidth"),
    ],
)
def test_all_is_checked_before_any_ir_is_touched(text: str, message: str) -> None:
    module = parse_module(matvec())
    before = str(module)
    with pytest.raises(PlanError, match=message):
        run(module, f"set-encoding,linalg-generalize-named-ops,{text}")
    assert str(module) == before


def test_what_upstream_says_of_an_option_is_not_printed_but_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlanError) as caught:
        plan_steps(parse_pipeline("canonicalize{no-such-option=1}"))
    assert "no-such-option" in caught.value.message
    assert capfd.readouterr().err == ""


def test_a_mixture_runs_in_order() -> None:
    text = run(parse_module(matvec()), "linalg-generalize-named-ops,set-encoding{format=dcsr},canonicalize")
    assert "linalg.generic" in text
    assert "d0 : compressed, d1 : compressed" in text


def test_the_names_of_upstream_are_upstreams() -> None:
    assert {"canonicalize", "cse", "sparsification", "gpu-module-to-binary", "convert-gpu-to-nvvm"} <= upstream_names()
    assert not upstream_names() & {find(name).name for name in ("set-encoding", "unroll", "vectorize")}
    for name in ("canonicalize", "sparsification", "gpu-module-to-binary"):
        plan_steps(parse_pipeline(name))


# --- Failures -----------------------------------------------------------------------------------------


class Mistaken(FunctionPass):
    """A pass that does what a test wants."""

    name = "mistaken"
    kind = Kind.LOWERING
    action: Any = None

    def run_on(self, func: ir.OpView, target: Target) -> None:
        type(self).action(func)


def mistaken(action: Any) -> Mistaken:
    return type("Mistaken", (Mistaken,), {"action": staticmethod(action)})()


def erase_return(func: ir.OpView) -> None:
    list(func.regions[0].blocks[0])[-1].operation.erase()


def divide(func: ir.OpView) -> None:
    func.attributes["test.touched"] = ir.UnitAttr.get(func.operation.context)
    _ = 1 // 0


@pytest.mark.parametrize(
    ("action", "message", "where"),
    [
        (divide, "ZeroDivisionError", "mistaken"),
        (erase_return, "block with no terminator|empty block|expect at least a terminator", r"-:1:1: mistaken|mistaken"),
    ],
)
def test_a_failing_pass_leaves_the_ir_from_before_it(action: Any, message: str, where: str, failures: Path) -> None:
    module = parse_module(matvec())
    before = str(module)
    with pytest.raises(StepFailed, match=message) as caught:
        run_pass(module, mistaken(action), Target())
    error = caught.value
    assert error.exit_code == 3
    assert (error.where or "").endswith("mistaken")
    program, option, *_, path = shlex.split(error.reproduce or "")
    assert (program, option) == ("ditto-opt", "--pipeline=mistaken")
    assert Path(path).is_relative_to(failures)
    assert str(parse_module(Path(path).read_text())) == before
    assert "loc(" in Path(path).read_text(), "locations are kept"
    assert f"\n  reproduce: {error.reproduce}" in str(error)


def test_what_a_pass_raises_on_purpose_goes_through(failures: Path) -> None:
    def refuse(func: ir.OpView) -> None:
        raise InputError("on purpose")

    with pytest.raises(InputError, match="on purpose"):
        run_pass(parse_module(matvec()), mistaken(refuse), Target())
    assert list(failures.iterdir()) == [], "that is no fault"


def test_a_pass_must_apply_to_one_function_at_least() -> None:
    def only_second(func: ir.OpView) -> None:
        if ir.StringAttr(func.attributes["sym_name"]).value != "other":
            raise NotApplicable("not this one")

    two = parse_module(matvec() + matvec().replace("@spmv", "@other"))
    run_pass(two, mistaken(only_second), Target())
    with pytest.raises(NotApplicable, match="not this one"):
        run_pass(parse_module(matvec()), mistaken(only_second), Target())
    with pytest.raises(NotApplicable, match="no function with a body"):
        run_pass(parse_module("func.func private @f()"), mistaken(only_second), Target())


def test_a_failing_upstream_pass_is_named_with_its_place() -> None:
    text = (
        "#E = #sparse_tensor.encoding<{ map = (i, j) -> (i : dense, j : compressed) }>\n"
        "func.func @f(%A: tensor<?x?xf32, #E>) -> tensor<?x?xf32, #E> { return %A : tensor<?x?xf32, #E> }"
    )
    module = parse_module(text)
    with pytest.raises(StepFailed, match="static shape") as caught:
        run_upstream(module, "sparse-assembler")
    assert caught.value.where == "-:2:1: sparse-assembler"
    *_, path = shlex.split(caught.value.reproduce or "")
    with pytest.raises(StepFailed, match="static shape"):
        run(parse_module(Path(path).read_text()), "sparse-assembler")


def test_only_the_failing_step_is_repeated(failures: Path) -> None:
    text = (
        "#E = #sparse_tensor.encoding<{ map = (i, j) -> (i : dense, j : compressed) }>\n"
        "func.func @f(%A: tensor<?x?xf32, #E>) -> tensor<?x?xf32, #E> {\n"
        "  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 0 : index\n  return %A : tensor<?x?xf32, #E>\n}"
    )
    with pytest.raises(StepFailed) as caught:
        run(parse_module(text), "canonicalize,sparse-assembler")
    assert "sparse-assembler" in (caught.value.reproduce or "")
    assert len(list(failures.iterdir())) == 1


def test_steps_are_recorded_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_recorders", [])
    pipeline.record_to(tmp_path)
    module = parse_module(matvec())
    run(module, "set-encoding,cse")
    assert any("cse" in path.read_text() for path in tmp_path.glob("*.txt"))
    recorded = (tmp_path / "before.mlir").read_text()
    assert "sparse_tensor.encoding" in recorded
    parse_module(recorded)


# --- Standard error -----------------------------------------------------------------------------------


def test_what_is_written_to_standard_error_is_caught(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_stderr() as said:
        os.write(2, b"  from below \n")
        assert said() == "from below"
    assert said is not None
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_standard_error_comes_back_after_an_exception(capfd: pytest.CaptureFixture[str]) -> None:
    def write_and_raise() -> None:
        with captured_stderr():
            os.write(2, b"lost")
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        write_and_raise()
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"
