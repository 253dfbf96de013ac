"""`LoopNest`: kinds, roles and forms of the loops that sparsification makes, and of what each pass makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PRODUCT, generic, matmul, matvec, transposed_matvec
from mlir import ir

from sparseditto.compiler.driver import SPARSIFY
from sparseditto.compiler.pipeline import run_items
from sparseditto.dialects.binding import functions, op_name, parse_module
from sparseditto.dialects.builders import known
from sparseditto.dialects.errors import NotApplicable, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Form
from sparseditto.passes.nest import Loop, LoopKind, LoopNest, Role, accessed, indices, root_buffer
from sparseditto.passes.pipeline_text import parse_pipeline
from sparseditto.passes.registry import find

pytestmark = pytest.mark.usefixtures("mlir_context")

S2 = f"{SPARSIFY},prepare-nest"
DENSE, COMPRESSED, BLOCK = LoopKind.DENSE, LoopKind.COMPRESSED, LoopKind.BLOCK
PARALLEL, REDUCTION = Role.PARALLEL, Role.REDUCTION

# A nest holds ops of its module, so the module must live on.
_alive: list[ir.Module] = []


def read(text: str, layout: str = "csr", then: str = "") -> LoopNest:
    """The nest of a kernel stored as `layout`, after `then`."""
    module = parse_module(text)
    _alive[:] = [module]
    pipeline = f"set-encoding{{format={layout}}},{S2}" + (f",{then}" if then else "")
    run_items(module, parse_pipeline(pipeline), Target())
    (func,) = functions(module)
    return LoopNest.read(func)


def described(nest: LoopNest) -> list[tuple[LoopKind, Role, int]]:
    return [(loop.kind, loop.role, loop.depth) for loop in nest.loops]


# --- What sparsification makes ------------------------------------------------------------------------

NESTS: dict[str, tuple[str, str, list[tuple[LoopKind, Role, int]]]] = {
    "spmv csr": (matvec(), "csr", [(DENSE, PARALLEL, 0), (COMPRESSED, REDUCTION, 1)]),
    "spmv dcsr": (matvec(), "dcsr", [(COMPRESSED, PARALLEL, 0), (COMPRESSED, REDUCTION, 1)]),
    "spmv csc": (matvec(), "csc", [(DENSE, REDUCTION, 0), (COMPRESSED, PARALLEL, 1)]),
    "spmv dcsc": (matvec(), "dcsc", [(COMPRESSED, REDUCTION, 0), (COMPRESSED, PARALLEL, 1)]),
    "spmv bsr": (
        matvec(),
        "bsr",
        [(DENSE, PARALLEL, 0), (COMPRESSED, REDUCTION, 1), (BLOCK, PARALLEL, 2), (BLOCK, REDUCTION, 3)],
    ),
    "transposed csc": (transposed_matvec(), "csc", [(DENSE, PARALLEL, 0), (COMPRESSED, REDUCTION, 1)]),
    "spmm csr": (matmul(), "csr", [(DENSE, PARALLEL, 0), (COMPRESSED, REDUCTION, 1), (DENSE, PARALLEL, 2)]),
    "spmm dcsr": (matmul(), "dcsr", [(COMPRESSED, PARALLEL, 0), (COMPRESSED, REDUCTION, 1), (DENSE, PARALLEL, 2)]),
    "spmm bsr": (
        matmul(),
        "bsr",
        [
            (DENSE, PARALLEL, 0),
            (COMPRESSED, REDUCTION, 1),
            (BLOCK, PARALLEL, 2),
            (BLOCK, REDUCTION, 3),
            (DENSE, PARALLEL, 4),
        ],
    ),
}


@pytest.mark.parametrize("name", NESTS)
def test_kinds_and_roles(name: str) -> None:
    text, layout, expected = NESTS[name]
    assert described(read(text, layout)) == expected


def test_what_is_loaded_stored_and_filled() -> None:
    nest = read(matmul())
    assert [op_name(op) for op in nest.stores] == ["memref.store"]
    assert {op_name(op) for op in nest.loads} == {"memref.load"}
    assert nest.fill is not None
    assert root_buffer(nest.fill.operands[1]) == nest.output == accessed(nest.stores[0])
    assert len(indices(nest.stores[0])) == 2
    assert sum(accessed(load) == nest.output for load in nest.loads) == 1


def test_an_output_that_is_an_argument_has_no_fill() -> None:
    nest = read(matvec())
    assert nest.fill is None
    assert isinstance(nest.output.owner, ir.Block)
    assert nest.output.arg_number == 2


def test_columns_and_reductions() -> None:
    nest = read(matmul(), "bsr")
    assert [loop.depth for loop in nest.columns] == [4]
    assert [loop.depth for loop in nest.reductions] == [1, 3]
    assert nest.outer.depth == 0
    assert read(matvec()).columns == ()


def test_parents_and_children() -> None:
    nest = read(matmul(), "bsr")
    outer, entries, rows, columns, dense = nest.loops
    assert nest.parent(outer) is None
    assert [nest.parent(loop) for loop in nest.loops[1:]] == [outer, entries, rows, columns]
    assert nest.children(entries) == (rows,)
    assert nest.children(dense) == ()


def test_trip_counts() -> None:
    assert [loop.trip_count for loop in read(matmul(), "bsr").loops] == [None, None, 4, 4, None]
    assert read(STATIC).columns[-1].trip_count == 64


@pytest.mark.parametrize(
    ("lower", "upper", "step", "trips"), [(0, 8, 1, 8), (0, 8, 3, 3), (2, 8, 2, 3), (5, 5, 1, 0), (6, 5, 1, 0), (0, 1, 9, 1)]
)
def test_trip_count_of_constants(lower: int, upper: int, step: int, trips: int) -> None:
    module = parse_module(f"""func.func @f() {{
      %l = arith.constant {lower} : index
      %u = arith.constant {upper} : index
      %s = arith.constant {step} : index
      scf.for %i = %l to %u step %s {{ }}
      return
    }}""")
    (op,) = (op for op in functions(module)[0].regions[0].blocks[0] if op_name(op) == "scf.for")
    loop = Loop(op, DENSE, PARALLEL, 0)
    assert loop.trip_count == trips
    assert known(loop.upper) == upper
    assert known(loop.iv) is None
    assert loop.starts_at_zero_by_one() == (lower == 0 and step == 1)


def test_bounds_of_loops() -> None:
    rows, entries = read(matvec()).loops
    assert rows.sequential
    assert rows.starts_at_zero_by_one()
    assert known(rows.lower) == 0
    assert not entries.starts_at_zero_by_one()
    assert rows.iv == rows.body.arguments[0]
    assert rows.initial == []
    assert len(entries.initial) <= 1


# --- After each pass ----------------------------------------------------------------------------------

R, C, A, V, U, T, B = (
    Form.ROWS,
    Form.COLUMNS,
    Form.REGISTER_ACCUMULATION,
    Form.VECTORS,
    Form.UNROLLED,
    Form.THREADS,
    Form.BLOCKS,
)

STATIC = """
func.func @spmm(%A: tensor<?x?xf32> {ditto.sparse}, %B: tensor<?x64xf32>, %C: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %r = linalg.matmul ins(%A, %B : tensor<?x?xf32>, tensor<?x64xf32>) outs(%C : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}"""

FORMS: list[tuple[str, str, str, set[Form]]] = [
    (matmul(), "csr", "", {R, C}),
    (matmul(), "csr", "accumulate-registers", {R, C, A}),
    (STATIC, "csr", "accumulate-registers,vectorize{width=4}", {R, C, A, V}),
    (STATIC, "csr", "accumulate-registers,vectorize{width=1}", {R, C, A}),
    (STATIC, "csr", "accumulate-registers,vectorize,unroll", {R, C, A, V, U}),
    (matmul(), "csr", "accumulate-registers,unroll", {R, C, A, U}),
    (matmul(), "csr", "accumulate-registers,rows-to-threads", {C, A, T}),
    (matmul(), "csr", "accumulate-registers,rows-to-threads,unroll,map-blocks", {C, A, T, U, B}),
    (matvec(), "csr", "accumulate-registers", {R, A}),
    (matvec(), "dcsr", "accumulate-registers", {R, A}),
    (matvec(), "csr", "accumulate-registers,rows-to-threads", {A, T}),
    (matvec(), "csr", "accumulate-registers,rows-to-subgroups{share=entries}", {A, T}),
    (matvec(), "csr", "accumulate-registers,rows-to-subgroups{share=entries},map-blocks", {A, T, B}),
    (matvec(), "csc", "", set()),
    (matvec(), "bsr", "accumulate-registers", {R, A}),
]


@pytest.mark.parametrize(("text", "layout", "then", "forms"), FORMS)
def test_forms(text: str, layout: str, then: str, forms: set[Form]) -> None:
    assert read(text, layout, then).forms() == forms


def test_spmv_keeps_sums_in_registers_from_the_start() -> None:
    # sparsification scalarises the reduction of SpMV over CSR by itself
    assert Form.REGISTER_ACCUMULATION in read(matvec()).forms()


@pytest.mark.parametrize(
    ("text", "layout"), [(matvec(), "csr"), (matvec(), "dcsr"), (matvec(), "bsr"), (matmul(), "csr"), (matmul(), "bsr")]
)
def test_accumulation_puts_parallel_loops_outside(text: str, layout: str) -> None:
    before, after = described(read(text, layout)), described(read(text, layout, "accumulate-registers"))
    roles = [role for _, role, _ in after]
    assert roles == sorted(roles, key=[PARALLEL, REDUCTION].index)
    assert [depth for *_, depth in after] == list(range(len(after)))
    assert sorted(str(loop[:2]) for loop in after) == sorted(str(loop[:2]) for loop in before)


def test_the_fill_moves_into_the_nest_where_all_rows_are_reached() -> None:
    assert read(matmul(), "csr", "accumulate-registers").fill is None
    assert read(matmul(), "dcsr", "accumulate-registers").fill is not None


def test_mapped_loops() -> None:
    nest = read(matmul(), "csr", "accumulate-registers,rows-to-subgroups{lanes=4 share=columns}")
    assert [loop.mapping for loop in nest.loops[:2]] == ["warp", "lane"]
    assert nest.mapped("warp") == (nest.outer,)
    assert not nest.outer.sequential
    assert nest.outer.trip_count is None
    assert nest.mapped("block") == nest.mapped("thread") == ()
    nest = read(matvec(), "csr", "accumulate-registers,rows-to-threads,map-blocks")
    assert [loop.mapping for loop in nest.loops[:2]] == ["block", "thread"]
    assert [loop.kind for loop in nest.loops] == [DENSE, DENSE, COMPRESSED]
    assert [loop.role for loop in nest.loops] == [PARALLEL, PARALLEL, REDUCTION]


def test_unrolling_leaves_two_reductions_side_by_side() -> None:
    nest = read(matvec(), "csr", "accumulate-registers,unroll{factor=4}")
    first, second = nest.reductions
    assert first.depth == second.depth == 1
    assert nest.parent(first) == nest.parent(second) == nest.outer
    assert (first.kind, second.kind) == (COMPRESSED, COMPRESSED)


def test_vectors_are_stored() -> None:
    nest = read(STATIC, "csr", "accumulate-registers,vectorize{width=4}")
    (store,) = nest.stores
    assert op_name(store) == "vector.store"
    assert accessed(store) == nest.output
    assert len(indices(store)) == 2
    assert nest.columns[-1].trip_count == 16


# --- Checks and refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "then", "name", "message"),
    [
        (matmul(), "", "rows-to-threads", "rows-to-threads: needs reductions in registers"),
        (matvec(), "accumulate-registers", "vectorize", "vectorize: needs a sequential loop over dense columns"),
        (matvec(), "accumulate-registers", "map-blocks", "map-blocks: needs rows mapped"),
        (matvec(), "accumulate-registers,unroll", "unroll", "unroll: does not go with the innermost reduction unrolled"),
        (
            matvec(),
            "accumulate-registers,rows-to-threads",
            "accumulate-registers",
            "accumulate-registers: needs a parallel loop outside all others",
        ),
    ],
)
def test_a_nest_refuses_a_pass(text: str, then: str, name: str, message: str) -> None:
    with pytest.raises(NotApplicable, match=message):
        read(text, "csr", then).check(find(name)())


def test_a_refused_pass_leaves_the_ir_alone() -> None:
    nest = read(matmul(), "csr", "accumulate-registers")
    before = str(_alive[0])
    for step in ("vectorize{width=4}", "map-blocks", "unroll{factor=2},accumulate-registers"):
        first, *_ = step.split("},")
        with pytest.raises(NotApplicable):
            run_items(_alive[0], parse_pipeline(step), Target())
        if first == step:
            assert str(_alive[0]) == before
    assert nest.func is not None


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("return", NotApplicable, "there is no loop nest; run "),
        (
            "scf.for %i = %c0 to %c4 step %c1 { memref.store %v, %y[%i] : memref<4xf32> }\n"
            "scf.for %i = %c0 to %c4 step %c1 { memref.store %v, %y[%i] : memref<4xf32> }\nreturn",
            Unsupported,
            "2 loop nests in one function",
        ),
        (
            "scf.for %i = %c0 to %c4 step %c1 { memref.store %v, %y[%i] : memref<4xf32>\n"
            "memref.store %v, %z[%i] : memref<4xf32> }\nreturn",
            Unsupported,
            "writes 2 buffers, not one",
        ),
        ("scf.for %i = %c0 to %c4 step %c1 { }\nreturn", Unsupported, "writes 0 buffers, not one"),
        (
            "scf.for %i = %c0 to %c4 step %c1 {\n"
            "%n = scf.while (%a = %i) : (index) -> index {\n%b = arith.cmpi ult, %a, %c4 : index\n"
            "scf.condition(%b) %a : index } do {\n^bb0(%a: index):\n%s = arith.addi %a, %c1 : index\nscf.yield %s : index }\n"
            "memref.store %v, %y[%n] : memref<4xf32> }\nreturn",
            Unsupported,
            "the nest has a 'scf.while'",
        ),
    ],
)
def test_functions_that_hold_no_nest(body: str, error: type[Exception], message: str) -> None:
    module = parse_module(f"""func.func @f(%y: memref<4xf32>, %z: memref<4xf32>, %v: f32) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      {body}
    }}""")
    with pytest.raises(error, match=message) as caught:
        LoopNest.read(functions(module)[0], reader="some-pass")
    assert getattr(caught.value, "where", None) == "some-pass"


def test_a_product_of_two_sparse_matrices_is_refused() -> None:
    maps = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>"
    text = generic(maps, "parallel reduction", PRODUCT, types="tensor<?x?xf32>, tensor<?x?xf32>, tensor<?xf32>")
    text = text.replace("%x: tensor<?x?xf32>", "%x: tensor<?x?xf32> {ditto.sparse}")
    with pytest.raises(Unsupported, match=r"scf\.while"):
        read(text)


def test_several_nests_are_read_in_order() -> None:
    module = parse_module("""func.func @f(%y: memref<4xf32>, %z: memref<4xf32>, %v: f32) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      scf.for %i = %c0 to %c4 step %c1 { memref.store %v, %z[%i] : memref<4xf32> }
      scf.for %i = %c0 to %c4 step %c1 { memref.store %v, %y[%i] : memref<4xf32> }
      return
    }""")
    nests = LoopNest.read_each(functions(module)[0])
    assert [nest.output.arg_number for nest in nests] == [1, 0]


def test_nests_see_through_casts(kernel_file: Callable[[str], Path]) -> None:
    module = parse_module("""func.func @f(%y: memref<4xf32>, %v: f32) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      %d = memref.cast %y : memref<4xf32> to memref<?xf32>
      scf.for %i = %c0 to %c4 step %c1 { memref.store %v, %d[%i] : memref<?xf32> }
      return
    }""")
    nest = LoopNest.read(functions(module)[0])
    assert nest.output == functions(module)[0].regions[0].blocks[0].arguments[0]
