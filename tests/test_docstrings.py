"""The IR in the passes' docstrings is true: a pass makes of its `Before` what its `After` says.

A `Before` that is a whole function is run as it stands, and the result must equal `After`.  A fragment is looked for in a nest
that the pass runs on (`FIXTURES`): its lines must match lines there in order, each of its names standing for one name of the
nest throughout; `...` stands for anything, a line that begins with it for several, and a line may leave out attributes, a
result and its end.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence

import pytest

from sparseditto.compiler.driver import SPARSIFY
from sparseditto.compiler.pipeline import run_items
from sparseditto.dialects.binding import context, parse_module
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Pass
from sparseditto.passes.pipeline_text import parse_pipeline
from sparseditto.passes.registry import registry

CSR = "#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed), posWidth = 32, crdWidth = 32}>\n"
SPMV = (
    CSR
    + """
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}"""
)
SPMM = (
    CSR
    + """
func.func @spmm(%A: tensor<?x?xf32, #CSR>, %B: tensor<?x64xf32>, %C: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %0 = linalg.matmul ins(%A, %B : tensor<?x?xf32, #CSR>, tensor<?x64xf32>) outs(%C : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}"""
)
SPMV_FILLED = """
#CSR = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>
func.func @spmv(%A: tensor<?x?xf32, #CSR>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf32, #CSR>
  %empty = tensor.empty(%m) : tensor<?xf32>
  %y = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}"""
SPMM_FILLED = (
    SPMV_FILLED.replace("linalg.matvec", "linalg.matmul").replace("tensor<?xf32>", "tensor<?x64xf32>").replace("@spmv", "@spmm")
)
BLOCKS = "(i floordiv 3 : dense, j floordiv 3 : compressed, i mod 3 : dense, j mod 3 : dense), posWidth = 32, crdWidth = 32"
SPMV_BLOCKS = SPMV_FILLED.replace("(i : dense, j : compressed)", BLOCKS)
NEST = f"{SPARSIFY},prepare-nest"
# For each pass with a fragment: a module, and the passes that run on it first.
FIXTURES = {
    "accumulate-registers": (SPMM, NEST),
    "accumulate-wide": (SPMV, f"{NEST},accumulate-registers"),
    "segment-rows": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "split-entries": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "diagonals": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "ell-rows": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "lower-triangle": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "pack-blocks": (SPMV_BLOCKS, f"{NEST},accumulate-registers"),
    "narrow-coordinates": (SPMV, f"{NEST},accumulate-registers"),
    "nonempty-rows": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "uniform-values": (SPMV, f"{NEST},accumulate-registers"),
    "slice-rows": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "stage-entries": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "vectorize-entries": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "prepare-nest": (SPMV.replace("@spmv", "@f"), SPARSIFY),
    "bin-rows": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "reorder": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "partition": (SPMV_FILLED, f"{NEST},accumulate-registers"),
    "next-part": (SPMV, f"{NEST},accumulate-registers,partition{{by=column}},rows-to-threads,map-blocks"),
    "keep-gathered": (SPMV, f"{NEST},accumulate-registers"),
    "stream-entries": (SPMV, f"{NEST},accumulate-registers"),
    "tile-columns": (SPMM_FILLED, f"{NEST},accumulate-registers"),
    "jam-block-rows": (SPMV_BLOCKS, f"{NEST},accumulate-registers"),
    "guard-padding": (SPMV_BLOCKS, f"{NEST},accumulate-registers"),
    "jam-columns": (SPMM_FILLED, f"{NEST},accumulate-registers,vectorize"),
    "rows-to-threads": (SPMV, f"{NEST},accumulate-registers"),
    "rows-to-subgroups": (SPMV, f"{NEST},accumulate-registers"),
    "share-loads": (SPMM_FILLED, f"{NEST},accumulate-registers,rows-to-subgroups"),
    "coarsen-rows": (SPMV, f"{NEST},accumulate-registers,rows-to-threads"),
    "persist-blocks": (SPMV, f"{NEST},accumulate-registers,rows-to-threads,map-blocks"),
    "unroll": (SPMV, f"{NEST},accumulate-registers"),
    "vectorize": (SPMM, f"{NEST},accumulate-registers"),
    "mlir-loop-invariant-code-motion": (
        SPMM_FILLED,
        f"{NEST},accumulate-registers,vectorize,rows-to-threads,unroll{{factor=2}}",
    ),
    "mlir-arith-int-range-narrowing": (SPMV, f"{NEST},accumulate-registers,rows-to-subgroups"),
    "mlir-arith-unsigned-when-equivalent": (SPMV_FILLED, f"{NEST},accumulate-registers,ell-rows,rows-to-threads,unroll"),
    "mlir-scf-for-loop-range-folding": (SPMV_FILLED, f"{NEST},accumulate-registers,rows-to-threads,coarsen-rows"),
    "map-blocks": (SPMV, f"{NEST},accumulate-registers,rows-to-threads"),
    "overlap-launch": (SPMV, f"{NEST},accumulate-registers,rows-to-threads,map-blocks"),
    "bound-launch": (SPMV, f"{NEST},accumulate-registers,rows-to-threads,map-blocks"),
    "lower-fill": (
        """func.func @fill(%C: memref<?x64xf32>) {
          %zero = arith.constant 0.0 : f32
          linalg.fill ins(%zero : f32) outs(%C : memref<?x64xf32>)
          return
        }""",
        "",
    ),
    "lower-collectives": (
        """func.func @sum(%p: f32) -> f32 {
          %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 4 : i32} : (f32) -> f32
          return %s : f32
        }""",
        "",
    ),
    "lower-nontemporal": (
        """llvm.func @load(%p: !llvm.ptr<1>) -> f32 {
          %v = llvm.load %p {nontemporal} : !llvm.ptr<1> -> f32
          llvm.return %v : f32
        }""",
        "",
    ),
    "lower-keep": (
        """llvm.func @f(%p: !llvm.ptr<1>) -> f32 attributes {ditto.keep = array<i32: 0>} {
          %v = llvm.load %p : !llvm.ptr<1> -> f32
          llvm.return %v : f32
        }""",
        "",
    ),
    "fuse-multiply-add": (
        """func.func @sum(%a: f32, %b: f32, %x: f32) -> f32 {
          %t = arith.mulf %a, %b : f32
          %s = arith.addf %x, %t : f32
          return %s : f32
        }""",
        "",
    ),
}
PASSES = {name: cls for name, cls in registry().items() if cls.__module__.startswith("sparseditto.")}
SHORTENED = {"outline-kernels"}  # the example leaves out most of a long signature; lit tests hold all of it
EXAMPLES = {name: cls for name, cls in PASSES.items() if "Before::" in (cls.__doc__ or "") and name not in SHORTENED}


def example(cls: type[Pass]) -> tuple[str, str, str]:
    """`Before`, the invocation of the pass that `After` names (else its bare name), and `After`."""
    found = re.search(r"^Before::\n(.*?)^After(?: ``([^`]+)``)?::\n(.*?)(?=^\S|\Z)", inspect.getdoc(cls) or "", re.M | re.S)
    assert found, f"{cls.name}: a Before:: needs an After:: or After ``{cls.name}{{…}}``::"
    return textwrap.dedent(found[1]).strip("\n"), found[2] or cls.name, textwrap.dedent(found[3]).strip("\n")


def run(source: str, pipeline: str) -> str:
    with context():
        module = parse_module(source)
        run_items(module, parse_pipeline(pipeline) if pipeline else (), Target())
        return str(module)


CONSTANT = re.compile(r"%c-?\d+(?:_i\d+)?")


def pattern(line: str) -> tuple[str, list[str]]:
    """A regular expression for one line of an example, and the names that its groups stand for; a constant `%c8` is itself."""
    regex, names = r"(?:%\w+ = )??", []
    for part in re.split(r"(%[\w-]+|\.\.\. ?| : )", line.removesuffix("{").strip()):
        if CONSTANT.fullmatch(part):
            regex += rf"{part}(?:_i\d+)?\b"
        elif part.startswith("%"):
            regex += r"(%[\w#]+)"
            names.append(part)
        elif part.startswith("..."):
            regex += ".*"
        else:
            regex += r"(?: \{[^}]*\})? : " if part == " : " else re.escape(part).replace(r"\#CSR", r"#\w+")
    return regex, names


def matches(example: Sequence[str], lines: Sequence[str], names: dict[str, str]) -> bool:
    """Whether the lines of an example stand among `lines` in order under one renaming."""
    if not example:
        return True
    regex, variables = pattern(example[0])
    for i, actual in enumerate(lines):
        found = re.match(regex, actual)
        if not found:
            continue
        bound = dict(names)
        agrees = all(bound.setdefault(v, a) == a for v, a in zip(variables, found.groups(), strict=True))
        if agrees and matches(example[1:], lines[i + 1 :], bound):
            return True
    return False


def _lines(line: str) -> list[str]:
    """`... a ... b` stands for a line with `a` and a later one with `b`."""
    if not line.startswith("... "):
        return [line]
    return [f"... {part.strip()}" for part in line.split("... ")[1:]]


def assert_shows(text: str, ir: str) -> None:
    """The example's lines, all but `...` and lone braces, stand in `ir`."""
    wanted = [line for part in text.splitlines() for line in _lines(part.strip()) if line not in ("", "...", "}")]
    lines = [re.sub(r" +", " ", line.strip()) for line in ir.splitlines()]
    assert matches(wanted, lines, {}), f"the example\n{textwrap.indent(text, '  ')}\nis not in\n{textwrap.indent(ir, '  ')}"


@pytest.mark.parametrize("name", sorted(PASSES))
def test_docstring_has_a_summary(name: str) -> None:
    summary, *rest = (inspect.getdoc(PASSES[name]) or "").split("\n")
    assert summary.endswith("."), f"{name}: the first line is one sentence"
    assert not rest or not rest[0], f"{name}: a blank line follows the summary"


@pytest.mark.parametrize("name", sorted(set(PASSES) - SHORTENED))
def test_docstring_has_an_example(name: str) -> None:
    assert name in EXAMPLES


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_is_true(name: str) -> None:
    before, invocation, after = example(EXAMPLES[name])
    assert invocation.startswith(name)
    if "func.func" in before and "..." not in before:
        assert run(before, invocation) == run(after, "")
        return
    assert name in FIXTURES, f"{name}: FIXTURES lacks a nest for this example"
    source, first = FIXTURES[name]
    cleaned = "canonicalize,cse"
    assert_shows(before, run(source, f"{first},{cleaned}" if first else ""))
    assert_shows(after, run(source, ",".join(filter(None, (first, invocation, cleaned)))))


def test_a_wrong_example_is_caught() -> None:
    """The matcher is strict about order, about names and about constants."""
    ir = "%1 = arith.addi %0, %c8 : index\n%2 = arith.muli %1, %c8 : index"
    assert_shows("%b = arith.addi %a, %c8\n%c = arith.muli %b, %c8 : index", ir)
    for wrong in (
        "%c = arith.muli %b, %c8\n%b = arith.addi %a, %c8",
        "%b = arith.addi %a, %c8\n%c = arith.muli %a, %c8",
        "%b = arith.addi %a, %c4",
        "%b = arith.subi %a, %c8",
    ):
        with pytest.raises(AssertionError):
            assert_shows(wrong, ir)
