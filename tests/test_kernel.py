"""Reading a kernel: the names of its operands, its entry, what it computes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import PRODUCT, generic, matmul, matvec, transposed_matmul

from sparseditto.compiler.computation import Computation, Instruction
from sparseditto.compiler.driver import fingerprint
from sparseditto.compiler.kernel import argument_names_in_text, read_kernel, read_kernel_file
from sparseditto.dialects.encoding import Encoding, Level
from sparseditto.dialects.errors import InputError, Unsupported

pytestmark = pytest.mark.usefixtures("mlir_context")


def names_of(text: str, entry: str | None = None) -> list[str]:
    return [operand.name for operand in read_kernel(text, entry=entry).computation.operands]


# --- Names --------------------------------------------------------------------------------------------


def test_names_are_those_of_the_text() -> None:
    assert names_of(matvec()) == ["A", "x", "y"]
    assert names_of(matmul()) == ["A", "B", "result"]


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("%A", "%matrix_1", ["matrix_1", "x", "y"]),
        ("%A", "%A.b", ["arg0", "x", "y"]),
        ("%A", "%A$", ["arg0", "x", "y"]),
        ("%A", "%0", ["arg0", "x", "y"]),
        ("%A", "%result", ["arg0", "x", "y"]),
        ("%x", "%arg0", ["A", "arg0", "y"]),
        ("@spmv", '@"a name (with) %B: things"', ["A", "x", "y"]),
        ("@spmv", '@"quoted \\22 quote"', ["arg0", "arg1", "arg2"]),
        ("func.func @spmv", "func.func private @spmv", ["A", "x", "y"]),
        ("func.func @spmv", "func.func public @spmv", ["A", "x", "y"]),
        ("func.func @spmv(", "func.func   @spmv  (", ["A", "x", "y"]),
        ("func.func @spmv", "// func.func @spmv(%N: f32)\nfunc.func @spmv", ["A", "x", "y"]),
        (", %x:", ", // then %no: it is a comment )\n  %x:", ["A", "x", "y"]),
        ("{ditto.sparse}", '{ditto.sparse, ditto.note = "%no: f32) {"}', ["A", "x", "y"]),
        ("{ditto.sparse}", "{ditto.sparse, ditto.deep = {a = [1, 2], b = {c = (f32, i32) -> f64}}}", ["A", "x", "y"]),
        ("{ditto.sparse}", '{ditto.sparse, ditto.name = "M"}', ["M", "x", "y"]),
        ("{ditto.sparse}", '{ditto.sparse, ditto.name = "not an identifier"}', ["arg0", "x", "y"]),
        ("{ditto.sparse}", '{ditto.sparse, ditto.name = ""}', ["arg0", "x", "y"]),
        ("{ditto.sparse}", '{ditto.sparse, ditto.name = "x"}', ["x", "arg1", "y"]),
        ("%x: tensor<?xf32>", '%x: tensor<?xf32> loc("x.py":1:2)', ["A", "x", "y"]),
    ],
)
def test_names_in_odd_texts(before: str, after: str, names: list[str]) -> None:
    text = matvec()
    text = text.replace(before, after) if before.startswith("%") and ":" not in before else text.replace(before, after, 1)
    assert names_of(text) == names


def test_names_are_never_taken_twice() -> None:
    text = matvec().replace("%x", "%arg2").replace("%A:", "%A :")
    assert len(set(names_of(text))) == 3


def test_names_from_the_generic_form() -> None:
    kernel = read_kernel(matvec())
    text = kernel.module.operation.get_asm(print_generic_op_form=True)
    assert names_of(text) == ["A", "x", "y"], "ditto.name keeps them"


def test_the_generic_form_without_names_falls_back() -> None:
    text = """"builtin.module"() ({
      "func.func"() <{function_type = (tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>, sym_name = "f",
                      arg_attrs = [{ditto.sparse}, {}, {}]}> ({
      ^bb0(%A: tensor<?x?xf32>, %x: tensor<?xf32>, %y: tensor<?xf32>):
        %r = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
        "func.return"(%r) : (tensor<?xf32>) -> ()
      }) : () -> ()
    }) : () -> ()"""
    assert names_of(text) == ["arg0", "arg1", "arg2"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("func.func @f() {", []),
        ("func.func @f(%a: i32) {", ["a"]),
        ("func.func @f(%a: (i32) -> i64, %b: memref<4xf32, strided<[1], offset: ?>>) {", ["a", "b"]),
        ("func.func @ff(%no: i32)\nfunc.func @f(%a: i32)", ["a"]),
        ('func.func @"f"(%a: i32)', ["a"]),
        ("func.func @f", []),
        ("// func.func @f(%no: i32)", []),
        ('"func.func @f(%no: i32)" func.func @f(%a: i32)', ["a"]),
        ("func.func @f(%a: i32) -> (i32 {x = 1}) attributes {b = 1}", ["a"]),
        ("", []),
    ],
)
def test_argument_names_in_text(source: str, names: list[str]) -> None:
    assert argument_names_in_text(source, "f") == names


def test_symbols_with_special_characters() -> None:
    assert argument_names_in_text("func.func @a.b$c(%x: i32)", "a.b$c") == ["x"]
    assert argument_names_in_text("func.func @aXb(%x: i32)", "a.b") == []


# --- The entry ----------------------------------------------------------------------------------------

TWO = matvec() + "\n" + matvec().replace("@spmv", "@other").replace("%A", "%M")


def test_one_of_several_functions() -> None:
    assert names_of(TWO, "spmv") == ["A", "x", "y"]
    kernel = read_kernel(TWO, entry="other")
    assert kernel.computation.entry == "other"
    assert kernel.computation.sparse.name == "M"
    assert "spmv" not in str(kernel.module)


def test_declarations_are_no_entries() -> None:
    assert names_of("func.func private @declared(tensor<?xf32>)\n" + matvec()) == ["A", "x", "y"]


@pytest.mark.parametrize(
    ("text", "entry", "message"),
    [
        (TWO, None, r"has several functions \(spmv, other\); choose one with --entry"),
        (TWO, "othr", "has no function 'othr'; did you mean 'other'.; it has spmv, other"),
        (TWO, "", "has no function ''"),
        (matvec(), "main", "has no function 'main'; it has spmv"),
        ("", None, "has no func.func with a body"),
        ("func.func private @f(tensor<?xf32>)", None, "has no func.func with a body"),
    ],
)
def test_entries_that_cannot_be_told(text: str, entry: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_kernel(text, "kernel.mlir", entry)
    assert caught.value.where == "kernel.mlir"


# --- What it computes ---------------------------------------------------------------------------------


def test_a_matrix_times_a_vector() -> None:
    c = read_kernel(matvec("f64")).computation
    assert (c.entry, c.op, c.iterators, c.initial) == ("spmv", "linalg.matvec", ("parallel", "reduction"), None)
    assert [(o.name, o.argument, o.dtype, o.shape, o.dims, o.sparse) for o in c.operands] == [
        ("A", 0, "float64", (None, None), (0, 1), True),
        ("x", 1, "float64", (None,), (1,), False),
        ("y", 2, "float64", (None,), (0,), False),
    ]
    assert c.body == (Instruction("arith.mulf", (0, 1)), Instruction("arith.addf", (2, 3)))
    assert c.result == 4
    assert c.size_names() == {"d0": 0, "d1": 1, "M": 0, "N": 1}


def test_a_matrix_times_a_matrix() -> None:
    c = read_kernel(matmul(fill=-1.5)).computation
    assert c.initial == -1.5
    assert c.output.argument is None
    assert c.size_names() == {"d0": 0, "d1": 1, "d2": 2, "M": 0, "N": 2, "K": 1}
    assert c.sparse.encoding is None
    assert not c.sparse.pinned


def test_sizes_of_a_transposed_matrix_are_the_matrixs() -> None:
    c = read_kernel(transposed_matmul()).computation
    assert c.size_names() == {"d0": 0, "d1": 1, "d2": 2, "M": 2, "N": 0, "K": 1}


def test_constants_and_functions_of_a_body() -> None:
    body = (
        "%s = arith.constant 2.5 : f32\n%u = math.absf %a : f32\n%v = arith.mulf %u, %s : f32\n"
        "%t = arith.mulf %v, %b : f32\n%r = arith.addf %c, %t : f32"
    )
    maps = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>"
    c = read_kernel(
        generic(maps, "parallel reduction", body, types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>")
    ).computation
    assert [i.op for i in c.body if i.op != "arith.constant"] == ["math.absf", "arith.mulf", "arith.mulf", "arith.addf"]
    assert [i.constant for i in c.body if i.op == "arith.constant"] == [2.5]
    assert c.result == 2 + len(c.body)


def test_a_constant_from_outside_the_body() -> None:
    maps = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>"
    body = "%u = arith.mulf %a, %s : f32\n%t = arith.mulf %u, %b : f32\n%r = arith.addf %c, %t : f32"
    text = generic(maps, "parallel reduction", body, types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>")
    text = text.replace("  %out =", "  %s = arith.constant 4.0 : f32\n  %out =")
    c = read_kernel(text).computation
    assert Instruction("arith.constant", (), 4.0) in c.body


def test_static_shapes() -> None:
    text = matvec().replace("tensor<?x?xf32>", "tensor<3x?xf32>").replace("%y: tensor<?xf32>", "%y: tensor<3xf32>")
    text = text.replace("outs(%y : tensor<?xf32>) -> tensor<?xf32>", "outs(%y : tensor<3xf32>) -> tensor<3xf32>")
    text = text.replace(") -> tensor<?xf32> {", ") -> tensor<3xf32> {").replace("%r : tensor<?xf32>", "%r : tensor<3xf32>")
    c = read_kernel(text).computation
    assert [o.shape for o in c.operands] == [(3, None), (None,), (3,)]


ENCODINGS = {
    "csr": (
        "map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 16",
        Encoding((Level(0), Level(1, "compressed")), 32, 16),
    ),
    "no widths": ("map = (d0, d1) -> (d0 : dense, d1 : compressed)", Encoding((Level(0), Level(1, "compressed")), 64, 64)),
    "csc": ("map = (i, j) -> (j : dense, i : compressed)", Encoding((Level(1), Level(0, "compressed")), 64, 64)),
    "blocks": (
        "map = (i, j) -> (i floordiv 2 : dense, j floordiv 3 : compressed, i mod 2 : dense, j mod 3 : dense)",
        Encoding(
            (
                Level(0, "dense", "floordiv", 2),
                Level(1, "compressed", "floordiv", 3),
                Level(0, "dense", "mod", 2),
                Level(1, "dense", "mod", 3),
            ),
            64,
            64,
        ),
    ),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_pinned_encodings(name: str) -> None:
    text, encoding = ENCODINGS[name]
    c = read_kernel(f"#E = #sparse_tensor.encoding<{{ {text} }}>\n" + matvec(a="tensor<?x?xf32, #E>")).computation
    assert c.sparse.pinned
    assert c.sparse.encoding == encoding


@pytest.mark.parametrize("text", [matvec(), matvec("f64", fill=1.0), matmul(), matmul(fill=None), transposed_matmul()])
def test_json_round_trips(text: str) -> None:
    c = read_kernel(text).computation
    again = Computation.from_json(json.loads(json.dumps(c.to_json())))
    assert again == c
    assert fingerprint(again) == fingerprint(c)


def test_json_of_a_pinned_operand_round_trips() -> None:
    for text, _ in ENCODINGS.values():
        c = read_kernel(f"#E = #sparse_tensor.encoding<{{ {text} }}>\n" + matvec(a="tensor<?x?xf32, #E>")).computation
        assert Computation.from_json(json.loads(json.dumps(c.to_json()))) == c


@pytest.mark.parametrize("change", [{"output": None}, {"inputs": 1}, {"body": [{}]}, {"more": 1}, {"inputs": [{}]}])
def test_json_that_is_no_computation(change: dict[str, Any]) -> None:
    data = read_kernel(matvec()).computation.to_json()
    with pytest.raises(InputError, match="no stored computation"):
        Computation.from_json({**data, **change})
    with pytest.raises(InputError):
        Computation.from_json({"entry": "f"})


def test_fingerprints_tell_computations_apart() -> None:
    texts = [matvec(), matvec("f64"), matvec(fill=0.0), matvec(fill=1.0), matmul(), transposed_matmul()]
    assert len({fingerprint(read_kernel(text).computation) for text in texts}) == len(texts)


# --- Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("func.func @f(", "expected", "k.mlir:1:"),
        (matvec().replace("linalg.matvec", "linalg.matvex"), "linalg.matvex", "k.mlir:2:"),
        (matvec().replace("return %r", "return %A"), "expects different type than prior uses", "k.mlir:3:"),
        (matvec().replace("return %r", "return %q"), "undeclared SSA value", "k.mlir:3:"),
        ("hello", "custom op 'hello' is unknown", "k.mlir:1:"),
        (matvec().replace("%x : tensor<?x?xf32>", "%x : tensor<?xf32>"), "expected|expects", "k.mlir:2:"),
        ("\0", "has no func.func", "k.mlir"),
    ],
)
def test_text_that_mlir_refuses(text: str, message: str, place: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_kernel(text, "k.mlir")
    assert (caught.value.where or "").startswith(place)
    assert len(str(caught.value).splitlines()) <= 4


LINE = "  %r = linalg.matvec"
UNSUPPORTED = {
    "no sparse operand": (matvec().replace(" {ditto.sparse}", ""), "0 operands are sparse; exactly one input must be"),
    "two sparse operands": (
        matvec().replace("%x: tensor<?xf32>", "%x: tensor<?xf32> {ditto.sparse}"),
        "2 operands are sparse; exactly one",
    ),
    "a sparse output": (
        matvec().replace(" {ditto.sparse}", "").replace("%y: tensor<?xf32>", "%y: tensor<?xf32> {ditto.sparse}"),
        "1 operands are sparse .the output among them",
    ),
    "a sparse vector": (
        matvec().replace(" {ditto.sparse}", "").replace("%x: tensor<?xf32>", "%x: tensor<?xf32> {ditto.sparse}"),
        "the sparse operand 'x' has rank 1; matrices are supported",
    ),
    "f8": (matvec("f8E5M2"), "element type f8E5M2 is not supported; f16, bf16, f32, f64 are"),
    "i32": (matvec("i32"), "element type i32 is not supported"),
    "complex": (matvec("complex<f32>"), "element type complex<f32> is not supported"),
    "two ops": (
        matvec().replace(
            "return %r",
            "%q = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%r : tensor<?xf32>)"
            " -> tensor<?xf32>\n  return %q",
        ),
        "the function has 2 linalg ops",
    ),
    "no op": (
        "func.func @f(%A: tensor<?x?xf32> {ditto.sparse}) -> tensor<?x?xf32> {\n  return %A : tensor<?x?xf32>\n}",
        "the function has 0 linalg ops",
    ),
    "another op beside it": (
        matvec().replace(LINE, "  %t = tensor.cast %x : tensor<?xf32> to tensor<4xf32>\n" + LINE),
        "'tensor.cast' is not supported beside the linalg op",
    ),
    "a call": (
        "func.func private @g()\n" + matvec().replace(LINE, "  call @g() : () -> ()\n" + LINE),
        "'func.call' is not supported beside the linalg op",
    ),
    "another result": (
        matvec().replace("return %r", "return %y"),
        "the function must return the result of its linalg op",
    ),
    "an output that nothing initialises": (
        matvec(fill=0.0).replace(
            "outs(%y : tensor<?xf32>) -> tensor<?xf32>\n  return", "outs(%e : tensor<?xf32>) -> tensor<?xf32>\n  return"
        ),
        "the output starts from neither an argument nor a linalg.fill of a constant",
    ),
    "an op of the body": (
        generic(
            "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>",
            "parallel reduction",
            "%t = math.sin %a : f32\n%r = arith.addf %c, %t : f32",
            types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>",
        ),
        "'math.sin' in the body is not supported",
    ),
    "a maximum": (
        generic(
            "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>",
            "parallel reduction",
            "%t = arith.mulf %a, %b : f32\n%r = arith.maximumf %c, %t : f32",
            types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>",
        ),
        "the body must add a term to the output",
    ),
    "a shifted index": (
        generic(
            "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i + j)>, affine_map<(i, j) -> (i)>",
            "parallel reduction",
            PRODUCT,
            types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>",
        ),
        "each index must be one loop",
    ),
    "a diagonal": (
        generic(
            "affine_map<(i, j) -> (i, i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>",
            "parallel reduction",
            PRODUCT,
            types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>",
        ),
        "uses a loop twice",
    ),
    "a level type": (
        "#E = #sparse_tensor.encoding<{ map = (i, j) -> (i : dense, j : structured[2, 4]) }>\n"
        + matvec(a="tensor<?x?xf32, #E>"),
        "level type|expected",
    ),
    "a conv": (
        """func.func @f(%A: tensor<?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %r = linalg.conv_1d ins(%A, %x : tensor<?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}""",
        "not supported",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_kernels_that_are_not_compiled(name: str) -> None:
    text, message = UNSUPPORTED[name]
    with pytest.raises((Unsupported, InputError), match=message) as caught:
        read_kernel(text, "k.mlir")
    assert caught.value.exit_code == 2
    if name != "a level type":
        assert (caught.value.where or "").startswith("k.mlir:")


# --- Files --------------------------------------------------------------------------------------------


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "k.mlir"
    path.write_text(matvec())
    assert read_kernel_file(path).computation.entry == "spmv"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), (b"ML\xefR\r\xff\xfe", "is not text"), (b"", "has no func.func with a body")],
)
def test_files_that_are_no_kernel(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "k.mlir"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_kernel_file(path)
    assert caught.value.where == str(path)
