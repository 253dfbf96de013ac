"""The project as a whole: what imports what, what an import costs, and what an installed wheel holds."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Dependencies point one way; `compiler` ties the others together.
MAY_IMPORT = {
    "dialects": {"dialects"},
    "passes": {"dialects", "passes"},
    "agent": {"dialects", "passes", "agent"},
    "compiler": {"dialects", "passes", "agent", "compiler"},
}
# Nothing may need these to be imported, and each has its one place.
OPTIONAL = {"pycuda": "compiler/runtimes", "litellm": "agent", "matplotlib": "compiler"}
FILES = sorted(path.relative_to(ROOT) for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("sparseditto", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imports(path: Path, nodes: Iterator[ast.AST] | None = None) -> set[str]:
    """Full names of what a file imports: anywhere in it, or in `nodes` only."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found: set[str] = set()
    for node in nodes or ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a file is imported: all but the bodies of functions and of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from at_import_time(child)


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_module_imports(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    assert module.__file__ is not None
    assert Path(module.__file__).name == path.name


@pytest.mark.parametrize("path", FILES, ids=str)
def test_dependencies_point_one_way(path: Path) -> None:
    ours = {name for name in imports(path) if name.startswith("sparseditto.")}
    wrong = {name for name in ours if name.split(".")[1] not in MAY_IMPORT[path.parts[0]]}
    assert not wrong, f"{path} may not import {sorted(wrong)}"
    if path.parts[:2] != ("compiler", "cli"):
        assert not {name for name in ours if name.startswith("sparseditto.compiler.cli")}, f"{path} imports compiler.cli"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_optional_dependencies_stay_in_their_place(path: Path) -> None:
    for name, place in OPTIONAL.items():
        if not path.is_relative_to(place):
            assert not {i for i in imports(path) if i.split(".")[0] == name}, f"{name} belongs in {place}"
    early = {i.split(".")[0] for i in imports(path, at_import_time(ast.parse((ROOT / path).read_text())))}
    assert not early & OPTIONAL.keys(), "import it in the function that needs it"


def test_a_package_needs_no_compiler_to_run() -> None:
    """`run` works where only NumPy, SciPy and pycuda are: reading a package imports neither MLIR nor a driver."""
    loaded = run_python("import sparseditto.compiler.package, sys; print(*sys.modules)").split()
    heavy = {"mlir", "networkx", "pycuda", "litellm", "torch", "cupy"}
    assert not heavy & {name.split(".")[0] for name in loaded}


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [("sparseditto", {"mlir", *OPTIONAL}), ("ditto-opt", {*OPTIONAL})],
)
def test_commands_start_without_what_they_may_lack(command: str, unwanted: set[str]) -> None:
    """`sparseditto run` works on a machine without MLIR, and both do without a driver."""
    loaded = run_python(
        "import importlib.metadata as m, sys\n"
        f"(e,) = m.entry_points(group='console_scripts', name='{command}')\n"
        "e.load()\n"
        "print(*sys.modules)"
    ).split()
    assert not unwanted & {name.split(".")[0] for name in loaded}


def test_version_is_stated_once() -> None:
    """pyproject.toml states it; the installed metadata and the CHANGELOG follow, and no module repeats it."""
    stated = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert stated is not None
    version = stated[1]
    assert importlib.metadata.version("sparseditto") == version
    assert re.search(rf"^## \[?{re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)
    repeated = [str(path) for path in FILES if f'"{version}"' in (ROOT / path).read_text()]
    assert not repeated


def test_the_native_library_is_installed() -> None:
    library = importlib.resources.files("sparseditto.compiler").joinpath("native/libditto_simt.so")
    assert library.is_file()


def test_no_top_level_names() -> None:
    """The folders install as `sparseditto.<name>` only, also from a checkout."""
    found = run_python(
        "import importlib.util as u, sys\n"
        "sys.path = [p for p in sys.path if p]\n"
        "print(*(n for n in ('compiler', 'dialects', 'passes', 'agent') if u.find_spec(n)))"
    )
    assert found.split() == []


@pytest.mark.slow
def test_a_wheel_holds_the_packages_their_data_and_the_library(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path.relative_to(ROOT) for package in MAY_IMPORT for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = [path for path in files if path.suffix not in (".cpp", ".h") and "__pycache__" not in path.parts]
    assert held == {
        "sparseditto/compiler/native/libditto_simt.so",
        *(f"sparseditto/{path.as_posix()}" for path in wanted),
    }
