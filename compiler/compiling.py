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


@dataclass(frozen=True)
class CompileTask:
    """What all candidates of a task have in common.  `sizes` are extents by iteration dimension; `plugins` are pass files."""

    text: str
    filename: str
    entry: str | None
    sizes: dict[int, int]
    chip: str
    plugins: tuple[Path, ...] = ()


@dataclass(frozen=True)
class CompileJob:
    """One candidate of a task; `plan` is a plan's JSON."""

    task: CompileTask
    plan: dict[str, Any]


class Compiler:
    """Makes packages: `compile` gives a package and seconds.  A job says all, so jobs of several tasks may be under way."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        import sparseditto.compiler.driver
        import sparseditto.compiler.kernel  # noqa: F401 (so that the first candidate does not wait for it)
        from sparseditto.passes.registry import registry

        registry()
        self._loaded: set[Path] = set()

    def hello(self) -> None:
        return None

    def healthy(self) -> bool:
        return True

    def compile(self, job: CompileJob, stage: Stage) -> tuple[KernelPackage, float]:
        from sparseditto.compiler.driver import compile_kernel
        from sparseditto.compiler.kernel import read_kernel
        from sparseditto.compiler.problem import bind
        from sparseditto.dialects.binding import context
        from sparseditto.dialects.target import Target
        from sparseditto.passes.plan import Plan
        from sparseditto.passes.registry import load_file

        task = job.task
        for path in task.plugins:
            if path not in self._loaded:
                load_file(path)
                self._loaded.add(path)
        start = time.perf_counter()
        with context():
            kernel = read_kernel(task.text, task.filename, task.entry)
            problem = bind(kernel.computation, {}, None, task.sizes)
            compiled = compile_kernel(kernel, problem, Target.named(task.chip), Plan.from_json(job.plan))
        return compiled.package, time.perf_counter() - start
