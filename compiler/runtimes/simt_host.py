"""The module that kernels move into: what it declares of the runtime, and its way to the LLVM dialect."""

from __future__ import annotations

from typing import ClassVar

from mlir import ir
from mlir.dialects import func
from mlir.passmanager import PassManager

from sparseditto.compiler.runtimes.simt_operations import place_of
from sparseditto.dialects.binding import first_diagnostic, op_name, walk
from sparseditto.dialects.errors import StepFailed, Unsupported

_PIPELINE = (
    "expand-strided-metadata",
    "lower-affine",
    "convert-scf-to-cf",
    "convert-vector-to-llvm",
    "finalize-memref-to-llvm",
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1}",
    "convert-math-to-llvm",
    "convert-math-to-libm",
    "arith-expand{include-bf16=true}",
    "convert-arith-to-llvm",
    "convert-cf-to-llvm",
    "convert-ub-to-llvm",
    "reconcile-unrealized-casts",
)
# Hosts have no bfloat16 arithmetic: do it in float32.
_PIPELINE_BF16 = (
    "math-extend-to-supported-types{extra-types=f16 target-type=f32}",
    "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32}",
)


class Host:
    """The module that kernels move into, with declarations of what they call."""

    # Types by letter: n index, i i32, l i64.
    _SIGNATURES: ClassVar[dict[str, tuple[str, str]]] = {
        "ditto_simt_barrier": ("ni", ""),
        "ditto_simt_shuffle": ("niilii", "ll"),
        "ditto_simt_divisor": ("nii", ""),
        "ditto_simt_mask": ("nl", ""),
        **{f"ditto_simt_access{rank}": ("ninn" + "nn" * rank, "") for rank in range(5)},
    }

    def __init__(self, module: ir.Module, checks: bool) -> None:
        self.module = module
        self.checks = checks
        self.index = ir.IndexType.get()
        self.i32 = ir.IntegerType.get_signless(32)
        self.i64 = ir.IntegerType.get_signless(64)
        self._declared: set[str] = set()

    def call(self, name: str, operands: list[ir.Value]) -> list[ir.Value]:
        """Call the runtime function `name` at the current insertion point."""
        types = {"n": self.index, "i": self.i32, "l": self.i64}
        taken, given = ([types[letter] for letter in letters] for letters in self._SIGNATURES[name])
        if name not in self._declared:
            self._declared.add(name)
            with ir.InsertionPoint(self.module.body), ir.Location.unknown():
                func.FuncOp(name, (taken, given), visibility="private")
        return list(func.CallOp(given, name, operands).operation.results)


def to_llvm(module: ir.Module, *, bf16: bool) -> None:
    passes = (*_PIPELINE_BF16, *_PIPELINE) if bf16 else _PIPELINE
    try:
        PassManager.parse(f"builtin.module({','.join(passes)})").run(module.operation)
    except ir.MLIRError as e:
        message, place = first_diagnostic(e)
        raise StepFailed(f"the kernel does not lower to host code: {message}", where=place) from e
    left = [op for op in walk(module.operation) if not op_name(op).startswith("llvm.")]
    left.sort(key=lambda op: op_name(op) == "builtin.unrealized_conversion_cast")  # these surround the culprit
    if left:
        raise Unsupported(f"'{op_name(left[0])}' has no host form here", where=place_of(left[0].location) or None)
