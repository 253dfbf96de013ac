"""Running pipelines that mix our passes with upstream's, step by step.

A failing step leaves the IR from before it in a folder and names the `ditto-opt` command that repeats it.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mlir import ir
from mlir.passmanager import PassManager

from sparseditto.dialects.binding import first_diagnostic
from sparseditto.dialects.errors import DittoError, PlanError, StepFailed, did_you_mean
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Pass
from sparseditto.passes.pipeline_text import Item, parse_options, print_pipeline
from sparseditto.passes.registry import loaded, registry
from sparseditto.passes.upstream import upstream_names

_ANY = Target()  # upstream's passes are told of no target


def run_items(module: ir.Module, items: Sequence[Item], target: Target) -> None:
    """Run a parsed pipeline on `module`; neighbouring upstream passes share one pass manager.

    All names and options are checked before any IR is touched.
    Raises `PlanError` for those, what our passes raise, and `StepFailed` when a step breaks the IR or upstream fails.
    """
    for step in plan_steps(items):
        if isinstance(step, Pass):
            run_pass(module, step, target)
        else:
            run_upstream(module, step)


def plan_steps(items: Sequence[Item]) -> list[Pass | str]:
    """Our passes as objects, runs of upstream passes as pipeline text."""
    steps: list[Pass | str] = []
    upstream: list[Item] = []

    def flush() -> None:
        if upstream:
            steps.append(print_pipeline(tuple(upstream)))
            upstream.clear()

    for item in _flatten(items):
        if item.nested is None and item.name in registry():
            flush()
            steps += registry()[item.name].make(parse_options(item.name, item.options)).expand()
        else:
            _check_upstream(item)
            upstream.append(item)
    flush()
    for step in steps:
        if isinstance(step, str):
            _parse_upstream(step)
    return steps


def _flatten(items: Sequence[Item]) -> list[Item]:
    """Open anchors that hold passes of ours: those walk the module by themselves."""
    flat: list[Item] = []
    for item in items:
        if item.nested is not None and (item.name == "builtin.module" or _mentions_ours(item)):
            flat += [
                inner if item.name == "builtin.module" or inner.name in registry() else Item(item.name, nested=(inner,))
                for inner in _flatten(item.nested)
            ]
        else:
            flat.append(item)
    return flat


def _mentions_ours(item: Item) -> bool:
    return item.name in registry() or any(map(_mentions_ours, item.nested or ()))


def _check_upstream(item: Item) -> None:
    if item.nested is not None:
        if item.name != "any" and not ir.Context.current.is_registered_operation(item.name):
            raise PlanError(f"'{item.name}(…)': no operation is named '{item.name}'")
        for inner in item.nested:
            _check_upstream(inner)
    elif item.name not in upstream_names():
        raise PlanError(f"no pass is named '{item.name}'{did_you_mean(item.name, [*registry(), *upstream_names()])}")


def _parse_upstream(text: str) -> None:
    """Raises `PlanError` with upstream's own words when an option or a nesting is wrong."""
    with captured_stderr() as said:
        try:
            PassManager.parse(f"builtin.module({text})")
        except (ValueError, ir.MLIRError) as e:
            raise PlanError(f"{said() or e}", where=text) from e


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Catch what C++ writes to file descriptor 2 (option errors go there, past `sys.stderr`); yields a reader of it."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)

        def said() -> str:
            file.seek(0)
            return file.read().decode(errors="replace").strip()

        try:
            yield said
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def run_pass(module: ir.Module, step: Pass, target: Target) -> None:
    """Run one pass of ours and verify what it left.

    What the pass raises on purpose goes through; anything else, and IR that does not verify, is `StepFailed`.
    """
    before = _before(module, str(step), target)
    try:
        step.apply(module, target)
        module.operation.verify()
    except DittoError:
        raise
    except ir.MLIRError as e:
        message, where = first_diagnostic(e)
        raise _failed(before, str(step), message, where, target) from e
    except Exception as e:
        raise _failed(before, str(step), f"{type(e).__name__}: {e}", None, target) from e


def run_upstream(module: ir.Module, text: str) -> None:
    """Run upstream passes.  Raises `StepFailed` with their first diagnostic."""
    before = _before(module, text)
    try:
        PassManager.parse(f"builtin.module({text})", module.context).run(module.operation)
    except ir.MLIRError as e:
        message, where = first_diagnostic(e)
        raise _failed(before, text, message, where) from e


_recorders: list[Path] = []


def record_to(folder: Path) -> None:
    """From now on write each step and the IR before it to `folder`: what is left there when the process dies did it."""
    _recorders.append(folder)


def reproduction(step: str, path: Path, target: Target) -> str:
    """The command that runs `step` on the IR in `path` as it ran here."""
    words = ["ditto-opt", f"--pipeline={step}", *(f"--load={file.resolve()}" for file in loaded)]
    words += [f"--target={target.chip}"] if target != Target() else []
    return shlex.join([*words, str(path)])


def _before(module: ir.Module, step: str, target: Target = _ANY) -> ir.Operation:
    """A copy of the module from before a step."""
    for folder in _recorders:
        (folder / "before.mlir").write_text(module.operation.get_asm(enable_debug_info=True), encoding="utf-8")
        (folder / "reproduce.txt").write_text(reproduction(step, folder / "before.mlir", target), encoding="utf-8")
    return module.operation.clone()


def _failed(before: ir.Operation, step: str, message: str, where: str | None, target: Target = _ANY) -> StepFailed:
    folder = Path(tempfile.mkdtemp(prefix="ditto-failure-"))
    path = folder / "before.mlir"
    path.write_text(before.operation.get_asm(enable_debug_info=True), encoding="utf-8")
    place = f"{where}: {step}" if where else step
    return StepFailed(message, where=place, reproduce=reproduction(step, path, target))
