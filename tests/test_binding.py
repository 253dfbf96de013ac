"""The surprises of MLIR's Python bindings that `dialects.binding` guards against; an upgrade may change any of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import UNNAMED_ENCODINGS, matvec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlir import ir

from sparseditto.dialects.binding import (
    argument_attributes,
    clone_into,
    context,
    defining_op,
    diagnostics_to,
    encoding_attribute,
    first_diagnostic,
    functions,
    load_ditto,
    location_text,
    op_name,
    parse_module,
    set_signature,
    sparse_encoding,
    walk,
)
from sparseditto.dialects.encoding import Encoding, Level, named_encoding
from sparseditto.dialects.errors import InputError, Unsupported

pytestmark = pytest.mark.usefixtures("mlir_context")

LOOPS = """func.func @f(%m: memref<?xf32>, %n: index) -> index {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %c0) -> index {
    %v = memref.load %m[%i] : memref<?xf32>
    scf.for %j = %c0 to %i step %c1 {
      memref.store %v, %m[%j] : memref<?xf32>
    }
    %t = arith.addi %s, %n : index
    scf.yield %t : index
  }
  return %r : index
}"""


# --- The ditto dialect --------------------------------------------------------------------------------


def test_the_dialect_may_be_loaded_twice() -> None:
    ctx = context()
    load_ditto(ctx)
    load_ditto(ctx)
    assert ctx.is_registered_operation("ditto.lane_reduce")


def test_every_context_has_the_dialect() -> None:
    for _ in range(3):
        with context():
            reduce = '"ditto.lane_reduce"(%a) {kind = "arith.addf", lanes = 4 : i32} : (f32) -> f32'
            parse_module(f"func.func @f(%a: f32) {{\n  %r = {reduce}\n  return\n}}")


def test_loading_it_twice_without_the_guard_ends_the_process() -> None:
    # When this no longer holds, `load_ditto` needs no guard.
    code = """
from mlir import ir
from mlir.dialects import irdl
from sparseditto.dialects import binding
ctx = ir.Context()
with ctx, ir.Location.unknown():
    for _ in range(2):
        irdl.load_dialects(ir.Module.parseFile(str(binding._DITTO)))
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "alive" not in done.stdout
    assert done.returncode != 0


# --- Encodings ----------------------------------------------------------------------------------------

ENCODINGS = {
    **{name: named_encoding(name) for name in ("csr", "csc", "dcsr", "dcsc", "bsr")},
    "narrow": named_encoding("csr", 16, 8),
    "wide": named_encoding("csr", 64, 64),
    "blocks of 2 x 3": named_encoding("bsr", block=(2, 3)),
    **UNNAMED_ENCODINGS,
    "three dimensions": Encoding((Level(2, "compressed"), Level(0, "compressed"), Level(1))),
    "a vector": Encoding((Level(0, "compressed"),)),
}


def typed(attribute: ir.Attribute, rank: int = 2) -> ir.Type:
    dynamic = ir.ShapedType.get_dynamic_size()
    with ir.Location.unknown():
        return ir.RankedTensorType.get([dynamic] * rank, ir.F32Type.get(), attribute)


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_round_trip(name: str) -> None:
    encoding = ENCODINGS[name]
    attribute = encoding_attribute(encoding)
    assert sparse_encoding(typed(attribute, encoding.rank)) == encoding
    assert encoding_attribute(sparse_encoding(typed(attribute, encoding.rank)) or encoding) == attribute
    assert Encoding.from_json(encoding.to_json()) == encoding


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.permutations([0, 1]),
    st.lists(st.sampled_from(["dense", "compressed"]), min_size=2, max_size=2),
    st.sampled_from([8, 16, 32, 64]),
    st.sampled_from([8, 16, 32, 64]),
)
def test_any_order_and_width_round_trips(order: list[int], types: list[str], positions: int, coordinates: int) -> None:
    encoding = Encoding(tuple(map(Level, order, types)), positions, coordinates)
    assert sparse_encoding(typed(encoding_attribute(encoding))) == encoding


def test_what_has_no_sparse_encoding() -> None:
    assert sparse_encoding(ir.F32Type.get()) is None
    assert sparse_encoding(ir.Type.parse("tensor<?x?xf32>")) is None
    assert sparse_encoding(ir.Type.parse("tensor<*xf32>")) is None
    assert sparse_encoding(ir.Type.parse("memref<?xf32>")) is None
    assert sparse_encoding(ir.Type.parse('tensor<4xf32, "another encoding">')) is None
    assert sparse_encoding(ir.Type.parse("tensor<4xf32, 3 : i32>")) is None


@pytest.mark.parametrize(
    "text",
    [
        "(i, j) -> (i : dense, j : compressed(nonordered))",
        "(i, j) -> (i : compressed(nonunique, nonordered), j : singleton(nonordered))",
        "(i, j) -> (i : batch, j : compressed)",
        "(i, j) -> (i : dense, j floordiv 4 : dense, j mod 4 : structured[2, 4])",
    ],
)
def test_encodings_that_nothing_packs_are_refused(text: str) -> None:
    attribute = ir.Attribute.parse(f"#sparse_tensor.encoding<{{ map = {text} }}>")
    with pytest.raises(Unsupported):
        sparse_encoding(typed(attribute))


def test_an_encoding_is_a_plain_attribute() -> None:
    # When this no longer holds, `sparse_encoding` needs no constructor that may raise.
    attribute = ir.RankedTensorType(typed(encoding_attribute(ENCODINGS["csr"]))).encoding
    assert type(attribute) is ir.Attribute


# --- Names, places, diagnostics -----------------------------------------------------------------------


def test_the_name_of_a_function_is_not_the_name_of_its_op() -> None:
    (func,) = functions(parse_module(matvec()))
    assert op_name(func) == op_name(func.operation) == "func.func"
    assert str(func.name).strip('"') == "spmv", "the surprise that op_name is for"


def test_functions_are_those_with_a_body() -> None:
    texts = ("private @declared()", "@f() { return }", "@g() { return }")
    module = parse_module("\n".join(f"func.func {text}" for text in texts) + "\nmodule { func.func @inner() { return } }")
    assert [ir.StringAttr(f.attributes["sym_name"]).value for f in functions(module)] == ["f", "g"]
    assert functions(parse_module("")) == []


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('loc("a.mlir":2:3)', "a.mlir:2:3"),
        ("loc(unknown)", "unknown"),
        ('loc("a name")', "a name"),
        ('loc("a name"("a.mlir":2:3))', "a name(a.mlir:2:3)"),
        ('loc(fused["a.mlir":1:2, "b.mlir":3:4])', "fused[a.mlir:1:2, b.mlir:3:4]"),
    ],
)
def test_places_as_text(written: str, text: str) -> None:
    module = parse_module(f"func.func @f() {{ return }} {written}")
    assert location_text(functions(module)[0].location) == text


def test_diagnostics_name_the_file() -> None:
    with pytest.raises(InputError) as caught:
        parse_module("func.func @f() {\n  hello\n}", "some/file.mlir")
    assert caught.value.where == "some/file.mlir:2:3"
    assert "hello" in caught.value.message


def test_notes_are_part_of_a_message() -> None:
    with pytest.raises(InputError, match="prior use here"):
        parse_module("func.func @f(%a: f32) -> f64 { return %a : f64 }")


def test_the_first_of_several_diagnostics_is_told() -> None:
    with pytest.raises(ir.MLIRError) as caught:
        ir.Module.parse("func.func @f() { return }\nfunc.func @f() { return }")
    message, where = first_diagnostic(caught.value)
    assert "redefinition of symbol named 'f'" in message
    assert where is not None
    assert where.startswith("-:2:")


def test_diagnostics_can_be_handed_over() -> None:
    told = []
    module = parse_module("func.func @f() { return }")
    with diagnostics_to(lambda *diagnostic: told.append(diagnostic)):
        functions(module)[0].location.emit_error("once")
    assert told == [("error", "once", "-:1:1")]


# --- Walking and cloning ------------------------------------------------------------------------------


def test_walking_goes_into_regions_in_order() -> None:
    module = parse_module(LOOPS)
    assert [op_name(op) for op in walk(module.operation)] == [
        "func.func",
        "arith.constant",
        "arith.constant",
        "scf.for",
        "memref.load",
        "scf.for",
        "memref.store",
        "scf.yield",
        "arith.addi",
        "scf.yield",
        "func.return",
    ]


def test_ops_may_be_erased_while_walking() -> None:
    module = parse_module(LOOPS)
    for op in walk(module.operation):
        if op_name(op) == "memref.store":
            op.operation.erase()
    assert "memref.store" not in str(module)
    module.operation.verify()


def test_defining_ops() -> None:
    module = parse_module(LOOPS)
    (func,) = functions(module)
    loop = next(op for op in walk(func) if op_name(op) == "scf.for")
    assert defining_op(func.regions[0].blocks[0].arguments[0]) is None
    assert defining_op(loop.regions[0].blocks[0].arguments[0]) is None
    assert defining_op(loop.results[0]) == loop
    assert op_name(defining_op(loop.operands[0]) or loop) == "arith.constant"


def test_cloning_replaces_outside_operands_in_nested_regions_too() -> None:
    module = parse_module(LOOPS)
    (func,) = functions(module)
    memory, bound = func.regions[0].blocks[0].arguments
    loop = next(op for op in walk(func) if op_name(op) == "scf.for")
    with ir.InsertionPoint(loop), ir.Location.unknown():
        other = ir.Operation.create("memref.cast", results=[memory.type], operands=[memory]).results[0]
        new = clone_into(loop, {memory: other})
    assert new != loop
    inside = [op for op in walk(new) if op_name(op) in ("memref.load", "memref.store")]
    assert [list(op.operands)[op_name(op) == "memref.store"] for op in inside] == [other, other]
    untouched = [op for op in walk(loop) if op_name(op) in ("memref.load", "memref.store")]
    assert [list(op.operands)[op_name(op) == "memref.store"] for op in untouched] == [memory, memory]
    assert new.operands[1] == bound
    assert next(op for op in walk(new) if op_name(op) == "arith.addi").operands[1] == bound
    module.operation.verify()


def test_a_clone_uses_its_own_block_arguments() -> None:
    module = parse_module(LOOPS)
    loop = next(op for op in walk(module.operation) if op_name(op) == "scf.for")
    with ir.InsertionPoint(loop):
        new = clone_into(loop, {})
    load = next(op for op in walk(new) if op_name(op) == "memref.load")
    assert load.operands[1] == new.regions[0].blocks[0].arguments[0]
    module.operation.verify()


# --- Signatures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (matvec(), [{"ditto.sparse"}, set(), set()]),
        ("func.func @f(%a: f32, %b: f32) { return }", [set(), set()]),
        ("func.func @f() { return }", []),
    ],
)
def test_argument_attributes(text: str, expected: list[set[str]]) -> None:
    module = parse_module(text)
    assert [set(d) for d in argument_attributes(functions(module)[0])] == expected


def test_a_signature_follows_the_entry_block() -> None:
    module = parse_module("func.func @f(%a: f32, %b: f64) -> (f32 {test.x}) { return %a : f32 }")
    (func,) = functions(module)
    block = func.regions[0].blocks[0]
    with ir.Location.unknown():
        block.add_argument(ir.IndexType.get(), ir.Location.unknown())
        block.arguments[1].set_type(ir.F32Type.get())
        attributes = argument_attributes(func)
        attributes[2]["ditto.name"] = ir.StringAttr.get("n")
    set_signature(func, attributes)
    module.operation.verify()
    assert '@f(%arg0: f32, %arg1: f32, %arg2: index {ditto.name = "n"}) -> (f32 {test.x})' in str(module)
    assert argument_attributes(func)[2]["ditto.name"] == ir.StringAttr.get("n")


def test_a_signature_with_other_results() -> None:
    module = parse_module("func.func @f(%a: f32) -> (f32 {test.x}) { return %a : f32 }")
    (func,) = functions(module)
    end = list(func.regions[0].blocks[0])[-1]
    with ir.InsertionPoint(end), ir.Location.unknown():
        ir.Operation.create("func.return")
    end.operation.erase()
    set_signature(func, argument_attributes(func), results=[])
    module.operation.verify()
    assert str(module).strip().splitlines()[1].strip() == "func.func @f(%arg0: f32) {"


def test_an_op_does_not_keep_its_module_alive() -> None:
    # When this no longer holds, nothing needs to hold an `ir.Module`.
    module = parse_module("func.func @f() { return }")
    (func,) = functions(module)
    assert len(func.regions[0].blocks) == 1
    del module
    assert len(func.regions[0].blocks) == 0
