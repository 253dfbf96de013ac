"""`overlap-launch`: kernels touch nothing before they have waited, and compute what they do without it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import matmul, matvec, of_lengths

from sparseditto.compiler.api import compile_file, run
from sparseditto.dialects.errors import NotApplicable

HEAD = "set-encoding,accumulate-registers"
MEMORY = re.compile(r"\b(ld|st|atom|red|cp|prefetch)\b\S*\.(global|shared)")
SPMV = (
    f"{HEAD},rows-to-threads,unroll{{factor=8 tail=clamp}},map-blocks,bound-launch{{blocks=8}}",
    f"{HEAD},rows-to-subgroups{{lanes=8}},coarsen-rows,map-blocks,persist-blocks{{blocks=3}}",
    f"{HEAD},slice-rows{{height=32 window=128}},rows-to-threads,unroll{{factor=4 tail=halves}},map-blocks",
    f"{HEAD},keep-gathered,stage-entries{{entries=256 threads=64 stage=products}},unroll",
    f"{HEAD},split-entries{{length=32 items=4 mode=atomic}},map-blocks",
    f"{HEAD},bin-rows{{limit=32 length=1024 threads=128}},rows-to-threads,map-blocks",
)
SPMM = (
    f"{HEAD},vectorize{{width=4}},rows-to-subgroups{{lanes=2 share=columns}},unroll{{factor=4 tail=loop}},map-blocks",
    f"{HEAD},segment-rows{{length=16}},vectorize{{width=4}},rows-to-subgroups{{lanes=2 share=columns}},map-blocks",
    f"{HEAD},vectorize{{width=4}},split-entries{{length=32 items=4 lanes=2 share=columns}},map-blocks",
)


@pytest.mark.parametrize(("plan", "columns"), [*((plan, 0) for plan in SPMV), *((plan, 8) for plan in SPMM)])
def test_nothing_is_touched_before_the_wait(plan: str, columns: int, kernel_file: Callable[[str], Path]) -> None:
    a, text = of_lengths([120, 0, 3, 1, *[5] * 60], 150), matmul() if columns else matvec()
    sizes = {"K": columns} if columns else {}
    compiled = compile_file(kernel_file(text), {"A": a}, sizes, plan=f"{plan},overlap-launch")
    assert all(one.overlap for one in compiled.package.launches)
    entries = compiled.package.ptx.split(".visible .entry ")[1:]
    assert len(entries) == len({one.kernel for one in compiled.package.launches})
    for entry in entries:
        before, wait, after = entry.partition("griddepcontrol.wait;")
        assert wait
        assert not MEMORY.search(before)
        assert MEMORY.search(after)
        assert after.strip().startswith("griddepcontrol.launch_dependents;")
    result = run(compiled.package, {"A": a}, sizes, verify=True)
    assert result.check is not None
    assert result.check.passed


def test_without_it_no_launch_overlaps(kernel_file: Callable[[str], Path]) -> None:
    compiled = compile_file(kernel_file(matvec()), {"A": of_lengths([3] * 40, 30)}, plan=f"{HEAD},rows-to-threads,map-blocks")
    assert not any(one.overlap for one in compiled.package.launches)
    assert "griddepcontrol" not in compiled.package.ptx


def test_older_chips_refuse_it(kernel_file: Callable[[str], Path]) -> None:
    with pytest.raises(NotApplicable, match="sm_80 has no kernels that wait for each other"):
        compile_file(kernel_file(matvec()), {}, {}, chip="sm_80", plan=f"{HEAD},rows-to-threads,map-blocks,overlap-launch")
