"""Reading what a kernel takes from ptxas."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from sparseditto.compiler.runtimes import resources
from sparseditto.compiler.runtimes.resources import KernelResources, find_ptxas, parse_log, ptxas_resources
from sparseditto.dialects.errors import StepFailed

needs_ptxas = pytest.mark.skipif(not find_ptxas(), reason="no ptxas: pip install nvidia-cuda-nvcc")

PTX = """.version 7.8
.target sm_80
.address_size 64
.visible .entry first(.param .u64 out)
{
  .reg .b32 %r<3>; .reg .b64 %rd<3>;
  .shared .align 4 .b8 tile[1024];
  ld.param.u64 %rd1, [out];
  mov.u64 %rd2, tile;
  mov.u32 %r1, %tid.x;
  st.shared.u32 [%rd2], %r1;
  bar.sync 0;
  ld.shared.u32 %r2, [%rd2+4];
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry second(.param .u64 out) { ret; }
"""

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'rows' for 'sm_90'
ptxas info    : Function properties for rows
    64 bytes stack frame, 60 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative stack size, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 3.151 ms
ptxas info    : Compiling entry function 'tail' for 'sm_90'
ptxas info    : Function properties for tail
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the PTX of a failure is kept."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def tool(folder: Path, script: str) -> Path:
    """A stand-in for ptxas."""
    folder.mkdir()
    path = folder / "ptxas"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def use(monkeypatch: pytest.MonkeyPatch, *tools: Path) -> None:
    monkeypatch.setattr(resources, "find_ptxas", lambda: list(tools))


def test_a_log_gives_one_record_for_each_kernel() -> None:
    rows, tail = parse_log(LOG)
    assert rows == KernelResources("rows", registers=255, local_bytes=96, shared_bytes=1024, spill_bytes=92)
    assert tail == KernelResources("tail", registers=12, local_bytes=0, shared_bytes=0, spill_bytes=0)


def test_a_log_without_kernels_gives_none() -> None:
    assert parse_log("ptxas info    : 0 bytes gmem\n") == []


def test_a_record_goes_to_json_with_what_is_unknown_as_null() -> None:
    assert json.loads(json.dumps(parse_log(LOG)[1].to_json())) == {
        "kernel": "tail",
        "registers": 12,
        "local_bytes": 0,
        "shared_bytes": 0,
        "spill_bytes": 0,
        "max_threads": None,
        "blocks_per_sm": None,
        "occupancy": None,
    }


@needs_ptxas
@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_90a"])
def test_ptx_is_assembled_without_a_gpu(chip: str) -> None:
    kernels, tool = ptxas_resources(PTX, chip)
    assert kernels is not None
    found = {kernel.kernel: kernel for kernel in kernels}
    assert found.keys() == {"first", "second"}
    assert found["first"].shared_bytes == 1024
    assert 0 < found["first"].registers < 32
    assert found["second"].shared_bytes == found["second"].spill_bytes == found["second"].local_bytes == 0
    assert Path(tool).name == "ptxas"


@needs_ptxas
def test_wrong_ptx_fails_with_the_message_and_a_command_that_repeats_it(kept: Path) -> None:
    with pytest.raises(StepFailed, match=r"line 8; error .*'\.parameter'") as caught:
        ptxas_resources(PTX.replace("ld.param.", "ld.parameter."), "sm_90")
    assert caught.value.reproduce is not None
    again = subprocess.run(shlex.split(caught.value.reproduce), cwd=kept, capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert "'.parameter'" in again.stdout + again.stderr


@needs_ptxas
def test_a_chip_older_than_the_ptx_fails(kept: Path) -> None:
    with pytest.raises(StepFailed, match="higher than"):
        ptxas_resources(PTX, "sm_75")


@needs_ptxas
@pytest.mark.parametrize(
    ("ptx", "chip", "why"),
    [(PTX.replace("7.8", "99.0"), "sm_90", "Unsupported .version 99.0"), (PTX, "sm_999", "'sm_999' is not defined")],
)
def test_a_ptxas_that_is_too_old_is_a_reason_and_no_failure(ptx: str, chip: str, why: str) -> None:
    kernels, reason = ptxas_resources(ptx, chip)
    assert kernels is None
    assert why in reason


def test_without_ptxas_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    assert ptxas_resources(PTX, "sm_90") == (None, "no ptxas was found: pip install nvidia-cuda-nvcc")


def test_the_next_ptxas_is_asked_when_one_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tool(tmp_path / "old", "echo \"ptxas fatal   : Value 'sm_90' is not defined for option 'gpu-name'\" >&2; exit 255")
    new = tool(tmp_path / "new", f"cat <<'end'\n{LOG}end")
    use(monkeypatch, old, new)
    kernels, name = ptxas_resources(PTX, "sm_90")
    assert kernels == parse_log(LOG)
    assert name == str(new)


def test_a_ptxas_that_does_not_start_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path / "absent")
    kernels, reason = ptxas_resources(PTX, "sm_90")
    assert kernels is None
    assert reason == f"{tmp_path / 'absent'} cannot assemble it: it does not start: No such file or directory"


def test_a_silent_failure_still_says_something(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tool(kept / "bin", "exit 3"))
    with pytest.raises(StepFailed, match="ptxas: it failed without a message"):
        ptxas_resources(PTX, "sm_90")


def test_a_ptxas_that_hangs_is_ended(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_TIMEOUT_S", 0.2)
    use(monkeypatch, tool(kept / "bin", "exec sleep 60"))
    with pytest.raises(StepFailed, match=r"did not finish in 0\.2 s"):
        ptxas_resources(PTX, "sm_90")


def test_the_path_is_searched_after_python_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = tool(tmp_path / "bin", "exit 0")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_ptxas()[-1] == on_path
