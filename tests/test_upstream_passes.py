"""Upstream's passes as steps of a plan: their results are right, and what they would break they refuse."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import both, matmul, matvec, of_lengths

from sparseditto.agent.planner import Task
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.driver import SPARSIFY
from sparseditto.compiler.pipeline import run_items
from sparseditto.dialects.binding import context, parse_module
from sparseditto.dialects.errors import NotApplicable, PlanError, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.pipeline_text import parse_pipeline
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import find, register, registry
from sparseditto.passes.upstream import PREFIX, UpstreamPass, upstream_names

Write = Callable[[str], Path]

NAMES = sorted(name for name, cls in registry().items() if issubclass(cls, UpstreamPass))
LENGTHS = [0, 1, 2, 3, 40, 0, 17, 8, 1, 0]
HEAD = "set-encoding{coordinates=16},accumulate-registers"
PLANS = {
    "spmv": (
        f"{HEAD},@rows-to-subgroups{{lanes=8}},@unroll{{factor=4 tail=halves}},map-blocks",
        f"{HEAD},ell-rows{{factor=1024}},@rows-to-threads,coarsen-rows,@unroll{{factor=2}},@map-blocks",
        f"{HEAD},split-entries{{length=32 items=2}},@map-blocks",
    ),
    "spmm": (
        f"{HEAD},vectorize{{width=4}},jam-columns,rows-to-subgroups{{lanes=4 groups=2}},@unroll,map-blocks",
        f"{HEAD},segment-rows{{length=16}},rows-to-subgroups{{lanes=8}},share-loads,@map-blocks",
        f"{HEAD},partition{{by=length limit=8}},rows-to-threads,map-blocks,next-part,rows-to-subgroups{{lanes=8}},@map-blocks",
    ),
}


def invocations() -> Iterator[str]:
    """Each pass with its defaults, and with each other value of an option."""
    for name in NAMES:
        default = find(name)()
        yield str(default)
        for option in dataclasses.fields(default):
            choices = option.metadata["choices"] or (True, False)
            yield from (str(dataclasses.replace(default, **{option.name: c})) for c in choices if c != option.default)


def placed(plan: str, step: str) -> Iterator[str]:
    """The plan with the step at each `@` in turn, where it may stand."""
    parts = plan.split("@")
    for k in range(1, len(parts)):
        text = "".join((*parts[:k], f"{step},", *parts[k:]))
        with contextlib.suppress(PlanError):
            yield Plan.parse(text).text()


@pytest.mark.parametrize("step", list(invocations()))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kernel", PLANS)
def test_results_are_right(kernel: str, dtype: str, step: str, kernel_file: Write) -> None:
    """The pass at many places of plans that ask much of a nest: a pass after it may refuse what it left, none is wrong."""
    text = kernel_file(matvec(dtype) if kernel == "spmv" else matmul(dtype))
    plans = [plan for base in PLANS[kernel] for plan in placed(base, step)]
    right = 0
    for plan in plans:
        with contextlib.suppress(NotApplicable, Unsupported):
            both(text, of_lengths(LENGTHS, 45), plan, None if kernel == "spmv" else 8)
            right += 1
    assert right


def nest_after(pipeline: str) -> str:
    """A nest for SpMV with plain rows, after these passes."""
    with context():
        module = parse_module(
            matvec(a="tensor<?x?xf32, #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>>")
        )
        run_items(module, parse_pipeline(f"{SPARSIFY},prepare-nest,accumulate-registers,{pipeline}"), Target())
        return str(module)


@pytest.mark.parametrize("step", ["mlir-canonicalize", "mlir-cse"])
def test_the_pass_is_the_one_of_upstream(step: str) -> None:
    mapped = "rows-to-threads,unroll{factor=2}"
    assert nest_after(f"{mapped},{step}") == nest_after(f"{mapped},{step.removeprefix(PREFIX)}") != nest_after(mapped)


def test_a_refusal_leaves_the_nest_alone() -> None:
    """What is refused was tried on a copy."""
    with context():
        module = parse_module(ONE_ITERATION)
        run_items(module, parse_pipeline("unroll{factor=1}"), Target())
        before = str(module)
        with pytest.raises(NotApplicable, match="takes away the innermost reduction unrolled here"):
            run_items(module, parse_pipeline("mlir-canonicalize"), Target())
        assert str(module) == before


ONE_ITERATION = """func.func @one(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %y0 = memref.load %y[%i] : memref<?xf32>
    %s = scf.for %p = %c0 to %c1 step %c1 iter_args(%a = %y0) -> (f32) {
      %v = memref.load %x[%p] : memref<?xf32>
      %t = arith.addf %a, %v : f32
      scf.yield %t : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return
}"""


# --- Names and the search -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_names_are_upstreams_behind_a_prefix(name: str) -> None:
    upstream = name.removeprefix(PREFIX)
    assert upstream in upstream_names()
    assert name not in upstream_names()
    with pytest.raises(PlanError, match=f"'{upstream}' is upstream's; a plan names it '{name}'"):
        Plan.parse(upstream)


def test_no_pass_takes_a_name_of_upstream() -> None:
    class Cse(UpstreamPass):
        name = "cse"

    with pytest.raises(PlanError, match="registers a pass 'cse', which is upstream's name of one"):
        register(Cse)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlir-arith-int-range-narrowing{int-bitwidths-supported=64}", r"int-bitwidths-supported=64 is not one of \(16, 32\)"),
        ("mlir-arith-int-range-narrowing{int-bitwidths-supported=narrow}", "that is no int"),
        ("mlir-canonicalize{top-down=1}", "top-down=1: say true or false"),
        ("mlir-canonicalize{region-simplify=aggressive}", "no option 'region-simplify'; it has top-down"),
    ],
)
def test_options_are_held_to_their_domains(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.parse(text)


def test_the_search_proposes_few_of_them() -> None:
    """Of the moves from a plan they are a small part, and those that change no code are none."""
    task = Task(rows_first=True, choose_format=True, columns=32, element_bytes=4)
    space = Space(Context(task))
    moves = [move for plan in itertools.islice(space.seeds(), 12) for move in space.moves(plan)]
    ours = [move for move in moves if move.subject.startswith(f"+{PREFIX}")]
    assert {move.subject for move in ours} == {"+mlir-arith-int-range-narrowing", "+mlir-scf-for-loop-range-folding"}
    assert len(ours) < len(moves) / 20
