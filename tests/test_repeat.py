"""The check of equal bits: which kernels must repeat, what is run, and what counts as a failure."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]

import fake_gpu  # noqa: E402

from benchmarks import cusparse, gpu, repeat  # noqa: E402

SMOKE = ["--suite", "smoke", "--cases", "tiny_rmat|tiny_road", "--times", "3", "--K", "8"]


@pytest.mark.parametrize(
    ("ptx", "found", "must"),
    [
        ("atom.global.exch.b32 %r88, [%rd162+-2048], 0;\natom.global.add.u32 %r1, [%rd1], 1;", ["atom.global.add.u32"], True),
        ("\tadd.f32 %f1, %f2, %f3;\n\tbar.red.popc.u32 %r1, 0, %p1;\n\tredux.sync.add.s32 %r2, %r1, -1;", [], True),
        ("\t@%p1 red.global.add.f32 [%rd1], %f1;\n// atom.global.add.f64", ["red.global.add.f32"], False),
        ("\tatom.acq_rel.gpu.global.add.u32 %r1, [%rd1], 1;", ["atom.acq_rel.gpu.global.add.u32"], True),
        ("\tatom.global.cas.b32 %r1, [%rd1], %r2, %r3;", ["atom.global.cas.b32"], False),
        ("\tred.global.add.noftz.bf16x2 [%rd1], %r1;", ["red.global.add.noftz.bf16x2"], False),
    ],
)
def test_atomics_are_read_off_the_ptx(ptx: str, found: list[str], must: bool) -> None:
    assert repeat.atomics(ptx) == found
    assert repeat.must_repeat(found) is must


def test_it_runs_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "repeat.jsonl"
    assert repeat.main([*SMOKE, "--device", "simt", "--out", str(out)]) == 0
    about, *rows = (json.loads(line) for line in out.read_text().splitlines())
    assert about["kind"] == "machine"
    assert [(r["case"], r["op"], r["K"]) for r in rows] == [
        (case, op, k) for case in ("tiny_rmat", "tiny_road") for op, k in (("spmv", 0), ("spmm", 8))
    ]
    assert {(r["outcome"], r["differing"], r["times"]) for r in rows} == {("right", 0, 3)}
    assert {r["must_repeat"] for r in rows if r["case"] == "tiny_road"} == {True}
    text = capsys.readouterr().out
    assert "| tiny_road | SpMV | - | 3 | 0 | same bits | set-encoding" in text


@pytest.mark.parametrize("only_atomics", [True, False])
def test_other_bits_fail_unless_atomics_explain_them(
    only_atomics: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a made-up GPU whose kernels change a last bit now and then."""
    clock = fake_gpu.Clock()
    real, calls = fake_gpu.Session.launch, iter(range(1000))

    def launch(self: Any, stream: Any = None) -> None:
        real(self, stream)
        out = self.arrays[self.package.computation.output.name]
        if next(calls) % 2 and (bool(repeat.atomics(self.package.ptx)) or not only_atomics):
            out.view(np.uint32).reshape(-1)[np.flatnonzero(out)[0]] ^= 1

    monkeypatch.setitem(sys.modules, "cupy", fake_gpu.cupy(clock))
    monkeypatch.setattr(gpu, "Stream", lambda: fake_gpu.Stream(clock))
    monkeypatch.setattr(gpu, "CudaSession", partial(fake_gpu.Session, clock, lambda package: 1.0))
    monkeypatch.setattr(cusparse, "baselines", fake_gpu.baselines(clock))
    monkeypatch.setattr(repeat, "no_gpu", lambda: None)
    monkeypatch.setattr("sparseditto.compiler.runtimes.cuda.versions", lambda: {"gpu": "made up"})
    monkeypatch.setattr(fake_gpu.Session, "launch", launch)
    plan = "set-encoding,accumulate-registers,segment-rows{length=16},rows-to-threads,map-blocks"
    command = [*SMOKE, "--cases", "tiny_rmat|tiny_road", "--ops", "spmv", "--plan", plan, "--out", str(tmp_path / "r.jsonl")]
    assert repeat.main(command) == (0 if only_atomics else 1)
    text = capsys.readouterr().out
    assert "differs, as atomics may" in text
    assert ("**differs**" in text) is not only_atomics
    assert json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["gpu"] == {"gpu": "made up"}


def test_what_cannot_be_asked_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "r.jsonl")
    for words, message in ((["--times", "1"], "2 or more"), (["--K", "0"], "1 or more"), (["--ops", "sddmm"], "spmv and spmm")):
        with pytest.raises(SystemExit):
            repeat.main(["--out", out, *words])
        assert message in capsys.readouterr().err
    assert repeat.main(["--out", out, "--suite", "smoke", "--device", "simt", "--cases", "nothing"]) == 2
    assert "no case" in capsys.readouterr().err
