"""What a worker does to make a package of a plan: `Compiler`, the handler of the processes that compile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparseditto.compiler.package import KernelPackage
    from sparseditto.compiler.workers import Stage

COMPILER = "sparseditto.compiler.compiling:Compiler"


@dataclass(frozen=True)
class CompileTask:
    """What all candidates of a task have in common.  `sizes` are extents by iteration dimension; `plugins` are pass files."""

    text: str
    filename: str
    entry: str | None
    sizes: dict[int, int]
    chip: str
    plugins: tuple[Path, ...] = ()


class Compiler:
    """Makes packages: `compile` takes a plan's JSON and gives a package and seconds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        import sparseditto.compiler.driver
        import sparseditto.compiler.kernel  # noqa: F401 (so that the first candidate does not wait for it)
        from sparseditto.passes.registry import registry

        registry()
        self._loaded: set[Path] = set()
        self._task: CompileTask | None = None

    def hello(self) -> None:
        return None

    def healthy(self) -> bool:
        return True

    def setup(self, task: CompileTask) -> None:
        self._task = task

    def compile(self, plan: Any, stage: Stage) -> tuple[KernelPackage, float]:
        from sparseditto.compiler.driver import compile_kernel
        from sparseditto.compiler.kernel import read_kernel
        from sparseditto.compiler.problem import bind
        from sparseditto.dialects.binding import context
        from sparseditto.dialects.target import Target
        from sparseditto.passes.plan import Plan
        from sparseditto.passes.registry import load_file

        assert self._task is not None
        task = self._task
        for path in task.plugins:
            if path not in self._loaded:
                load_file(path)
                self._loaded.add(path)
        start = time.perf_counter()
        with context():
            kernel = read_kernel(task.text, task.filename, task.entry)
            problem = bind(kernel.computation, {}, None, task.sizes)
            compiled = compile_kernel(kernel, problem, Target.named(task.chip), Plan.from_json(plan))
        return compiled.package, time.perf_counter() - start
