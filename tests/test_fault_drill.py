"""The fault drill: what crashes, starves, strays or is killed costs one candidate, and the database outlives it."""

from __future__ import annotations

import ctypes
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul, matvec

from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.exchange import entries_of
from sparseditto.agent.memory.trial import verdict
from sparseditto.agent.tuner import Budget
from sparseditto.compiler.tuning import TuningSession, require_best
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import load_file

PLAIN = "set-encoding,accumulate-registers,rows-to-threads,map-blocks"
LANES = "set-encoding,accumulate-registers,rows-to-subgroups{lanes=4 share=entries},map-blocks"

PLUGIN = '''
from __future__ import annotations
import ctypes, os, signal
from dataclasses import dataclass
from typing import ClassVar
from mlir import ir
from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name, walk
from sparseditto.passes.base import Form, SchedulePass, option
from sparseditto.passes.registry import register


@register
@dataclass(frozen=True)
class Calamity(SchedulePass):
    """Takes the compiler down, or makes a kernel that does so with the GPU."""
    name: ClassVar[str] = "calamity"
    requires = (Form.THREADS,)
    how: str = option("what happens", default="none", choices=("segfault", "starve", "killed", "astray", "none"))

    def run(self, nest, target):
        if self.how == "segfault":
            ctypes.string_at(8)
        if self.how == "starve":
            bytearray(1 << 60)
        if self.how == "killed":  # as Linux does with a process when memory is short
            os.kill(os.getpid(), signal.SIGKILL)
        for op in walk(nest.func):
            if self.how == "astray" and op_name(op) == "memref.load":
                with ir.InsertionPoint(op):
                    op.operation.operands[1] = b.add(op.operands[1], b.index(1 << 40))
'''


def matrix(seed: int = 0, shape: tuple[int, int] = (120, 90), density: float = 0.05) -> sp.csr_array:
    return sp.random_array(shape, density=density, format="csr", rng=np.random.default_rng(seed))


@pytest.fixture
def plugin(tmp_path: Path, passes_forgotten: None) -> Path:
    path = tmp_path / "calamities.py"
    path.write_text(PLUGIN)
    load_file(path)
    return path


def needs_gpu() -> None:
    from sparseditto.compiler.runtimes.cuda import available

    if (reason := available()) is not None:
        pytest.skip(reason)


# --- Candidates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["simt", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_calamity_costs_its_candidate(device: str, plugin: Path, kernel_file: Callable[[str], Path], tmp_path: Path) -> None:
    """A compiler that segfaults, starves or is killed, a kernel that reads far from its data; the right one wins each time."""
    if device == "cuda":
        needs_gpu()
    hows = ("segfault", "astray", "starve", "killed", "none")
    plans = {how: Plan.parse(PLAIN.replace("rows-to-threads", f"rows-to-threads,calamity{{how={how}}}")) for how in hows}
    database = tmp_path / "t.sqlite3"
    with TuningSession(device=device, workers=2) as session:
        result = session.tune(kernel_file(matvec()), matrix(), budget=Budget(20), plans=list(plans.values()), database=database)
        assert session.crew.started
        compilers, measurer = session.crew.pools()
        assert compilers.replaced == 2, "each that went down is another process now"
        assert measurer.replaced == (device == "cuda"), "no context survives an illegal address"
    trials = {how: next(t for t in result.trials if t.plan == plan) for how, plan in plans.items()}
    assert {how: t.outcome for how, t in trials.items()} == {
        "segfault": "crash", "astray": "check-failed", "starve": "step-failed", "killed": "crash", "none": "ok",
    }  # fmt: skip
    assert "SIGSEGV" in trials["segfault"].why
    assert "SIGKILL" in trials["killed"].why
    assert "MemoryError" in trials["starve"].why
    assert ("the GPU stopped with a fault" if device == "cuda" else "out-of-bounds") in trials["astray"].why
    assert all(trials[how].us is None for how in hows[:-1])
    assert result.best == trials["none"]
    (entry,) = entries_of(database)
    kept = {r.plan.digest(): verdict(r.measurements) for r in entry.records}
    assert {digest: (m.outcome, m.why) for digest, m in kept.items()} == {
        t.plan.digest(): (t.outcome, t.why) for t in result.trials
    }


@pytest.mark.cuda
def test_short_memory_of_a_gpu_costs_the_candidates_that_need_it(kernel_file: Callable[[str], Path]) -> None:
    """Another process has all memory but 64 MiB: kernels on 360 MB of operands are refused, and run when it is free again."""
    needs_gpu()
    from sparseditto.compiler.devices import CudaDevice, _Array
    from sparseditto.compiler.runtimes import libcuda

    path, large, plans = kernel_file(matmul()), matrix(1, (200_000, 150_000), 1e-4), [Plan.parse(PLAIN)]
    with TuningSession() as session:
        assert require_best(session.tune(path, matrix(), {"K": 8}, budget=Budget(1), plans=plans)).ok
        CudaDevice(0)  # the context of this process
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        libcuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        taken = _Array((free.value - (64 << 20),), np.dtype(np.uint8))
        short = session.tune(path, large, {"K": 256}, budget=Budget(1), plans=plans)
        assert short.best is None
        assert [t.outcome for t in short.trials] == ["device"]
        assert "memory" in short.trials[0].why
        del taken
        assert require_best(session.tune(path, large, {"K": 256}, budget=Budget(1), plans=plans)).ok


# --- The tuner itself -------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from sparseditto.agent.memory.database import Database
from sparseditto.compiler.cli import main

put, count = Database.put, 0

def dying(self, *arguments):
    global count
    put(self, *arguments)
    count += 1
    if count == int(sys.argv[1]):
        assert self._db.in_transaction
        os.kill(os.getpid(), signal.SIGKILL)

Database.put = dying
raise SystemExit(main.main(sys.argv[2:]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spmv.mlir").write_text(matvec())
    sp.save_npz(tmp_path / "a.npz", matrix())
    return tmp_path


def tune_and_die(folder: Path, writes: int) -> None:
    """`tune`, whose process is killed within the transaction of its `writes`th measurement."""
    words = ["tune", "spmv.mlir", "--bind", "A=a.npz", "--device", "simt", "--workers", "2", "--db", "t.sqlite3"]
    command = [sys.executable, "-c", KILLED, str(writes), *words, "--budget", "60"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 128 + signal.SIGKILL, done.stderr


def measured(database: Path) -> dict[str, Any]:
    """What is kept of the one task, by plan."""
    (entry,) = entries_of(database)
    return {record.plan.digest(): record.measurements for record in entry.records}


def test_a_tuning_that_is_killed_while_it_writes_goes_on(folder: Path) -> None:
    """All that was committed is there, no part of what was being written, and the next tunings add to it."""
    database = folder / "t.sqlite3"
    tune_and_die(folder, 4)
    assert (folder / "t.sqlite3-wal").stat().st_size > 0, "it died before it could tidy up"
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert plain.execute("PRAGMA foreign_key_check").fetchall() == []
    plain.close()
    first = measured(database)
    assert len(first) == 3
    assert all(len(measurements) == 1 for measurements in first.values())
    tune_and_die(folder, 3)
    second = measured(database)
    assert first.items() <= second.items()
    assert len(second) == len(first) + 2, "two more were committed"
    command = [sys.executable, "-m", "sparseditto.compiler.cli.main", "tune", "spmv.mlir", "--bind", "A=a.npz"]
    command += ["--device", "simt", "--workers", "2", "--db", "t.sqlite3", "--budget", "8", "--json", "-o", "best.ditto"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
    told = json.loads(done.stdout)
    assert told["best"]["outcome"] == "ok"
    assert (folder / "best.ditto" / "kernel.ptx").is_file()
    with Database(database) as kept:
        assert kept.rows("PRAGMA integrity_check")[0][0] == "ok"
        assert kept.rows("SELECT count(*) FROM trials WHERE outcome = ''")[0][0] == 0, "no trial without a measurement"
    third = measured(database)
    assert second.keys() <= third.keys()
    assert len(third) > len(second)
