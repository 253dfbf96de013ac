"""Kernel packages: whole or not at all on disk, no alteration unnoticed, and run where MLIR is not installed."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul, matvec

from sparseditto.compiler.api import compile_file, run
from sparseditto.compiler.package import Buffer, KernelPackage, Launch
from sparseditto.compiler.runtimes import cuda
from sparseditto.dialects.errors import InputError

FILES = {"kernel.ptx", "kernel.mlir", "package.json"}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> KernelPackage:
    path = tmp_path_factory.mktemp("kernel") / "k.mlir"
    path.write_text(matmul())
    return compile_file(path, {"A": sp.csr_array(np.eye(40))}, {"K": 8}).package


def tree(folder: Path) -> dict[str, bytes | None]:
    """All paths below a folder, hidden ones too, with what files hold."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


# --- Saving and loading -------------------------------------------------------------------------------


def test_packages_round_trip(package: KernelPackage, tmp_path: Path) -> None:
    package.save(tmp_path / "p.ditto")
    assert KernelPackage.load(tmp_path / "p.ditto") == package
    assert {path.name for path in (tmp_path / "p.ditto").iterdir()} == FILES
    assert {path.name for path in tmp_path.iterdir()} == {"p.ditto"}


def test_every_format_round_trips(kernel_file: Callable[[str], Path], tmp_path: Path) -> None:
    a = sp.csr_array(np.eye(40))
    for number, layout in enumerate(("csr", "dcsr", "bsr block-rows=2 block-columns=3")):
        plan = f"set-encoding{{format={layout}}},accumulate-registers,rows-to-threads,map-blocks"
        compiled = compile_file(kernel_file(matvec("f64", fill=1.0)), {"A": a}, plan=plan).package
        compiled.save(tmp_path / f"{number}.ditto")
        loaded = KernelPackage.load(tmp_path / f"{number}.ditto")
        assert loaded == compiled
        result = run(loaded, {"A": a}, verify=True)
        assert result.check is not None
        assert result.check.passed


def test_what_a_package_says(package: KernelPackage) -> None:
    data = json.loads(json.dumps(package.to_json()))
    assert set(data) == {
        "schema",
        "computation",
        "chip",
        "buffers",
        "launches",
        "sizes",
        "plan",
        "versions",
        "provenance",
        "sha256",
    }
    assert set(data["sha256"]) == {"kernel.ptx", "kernel.mlir"}
    assert data["plan"]["kernel"]
    assert {"sparseditto", "xtc-mlir-python-bindings", "python"} <= set(data["versions"])
    assert [b.name for b in package.buffers] == ["A.positions1", "A.coordinates1", "A.values", "B", "result"]
    assert package.buffer("result").access == "write"
    assert package.writes("result")
    assert not package.writes("B")
    assert not package.writes("no such buffer")


def test_packages_may_be_read_by_all(package: KernelPackage, tmp_path: Path) -> None:
    package.save(tmp_path / "p.ditto")
    assert (tmp_path / "p.ditto").stat().st_mode & 0o777 == 0o755


def test_parents_are_made(package: KernelPackage, tmp_path: Path) -> None:
    package.save(tmp_path / "a" / "b" / "p.ditto")
    assert KernelPackage.load(tmp_path / "a" / "b" / "p.ditto") == package


def test_an_older_package_is_replaced(package: KernelPackage, tmp_path: Path) -> None:
    folder = tmp_path / "p.ditto"
    dataclasses.replace(package, ptx="// old", mlir="// old").save(folder)
    (folder / "left-over").write_text("from another release")
    package.save(folder)
    assert {path.name for path in folder.iterdir()} == FILES
    assert KernelPackage.load(folder) == package
    assert {path.name for path in tmp_path.iterdir()} == {"p.ditto"}


def test_an_empty_folder_is_taken(package: KernelPackage, tmp_path: Path) -> None:
    (tmp_path / "p.ditto").mkdir()
    package.save(tmp_path / "p.ditto")
    assert KernelPackage.load(tmp_path / "p.ditto") == package


def test_a_link_to_a_package_is_taken(package: KernelPackage, tmp_path: Path) -> None:
    dataclasses.replace(package, ptx="// old").save(tmp_path / "real.ditto")
    (tmp_path / "link.ditto").symlink_to("real.ditto")
    package.save(tmp_path / "link.ditto")
    assert KernelPackage.load(tmp_path / "link.ditto") == package
    assert {path.name for path in tmp_path.iterdir()} == {"real.ditto", "link.ditto"}


@pytest.mark.parametrize("what", ["a file", "a folder of somebody's"])
def test_what_is_no_package_is_not_replaced(what: str, package: KernelPackage, tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    if what == "a file":
        folder.write_text("precious")
    else:
        folder.mkdir()
        (folder / "thesis.tex").write_text("precious")
    before = tree(tmp_path)
    with pytest.raises(InputError, match="exists and is no kernel package; choose another output") as caught:
        package.save(folder)
    assert caught.value.where == str(folder)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("output", ["file/p.ditto", "file/a/p.ditto"])
def test_an_output_below_a_file_is_refused(output: str, package: KernelPackage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"cannot write there|exists and is no kernel package"):
        package.save(tmp_path / output)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_full_disk_leaves_nothing_behind(
    name: str, older: bool, package: KernelPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if older:
        dataclasses.replace(package, ptx="// old").save(tmp_path / "p.ditto")
    before = tree(tmp_path)
    write = Path.write_text

    def failing(path: Path, text: str, *args: Any, **kwargs: Any) -> int:
        if path.name == name:
            write(path, text[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", failing)
    with pytest.raises(InputError, match="cannot write there: No space left on device"):
        package.save(tmp_path / "p.ditto")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("failing_call", [1, 2])
def test_a_package_that_cannot_be_moved_in_leaves_the_old_one(
    failing_call: int, package: KernelPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataclasses.replace(package, ptx="// old").save(tmp_path / "p.ditto")
    before = tree(tmp_path)
    replace, calls = os.replace, 0

    def failing(source: Any, target: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == failing_call:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(InputError, match="cannot write there: Permission denied"):
        package.save(tmp_path / "p.ditto")
    assert tree(tmp_path) == before


def test_an_interrupted_save_leaves_nothing_behind(
    package: KernelPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        package.save(tmp_path / "p.ditto")
    assert tree(tmp_path) == {}


# --- Alterations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kernel.ptx", "kernel.mlir"])
def test_an_altered_kernel_is_refused(name: str, package: KernelPackage, tmp_path: Path) -> None:
    package.save(tmp_path / "p.ditto")
    path = tmp_path / "p.ditto" / name
    path.write_text(path.read_text() + " ")
    with pytest.raises(InputError, match=f"{name} is not the file that was compiled .its hash differs"):
        KernelPackage.load(tmp_path / "p.ditto")


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_lacks_is_named(name: str, package: KernelPackage, tmp_path: Path) -> None:
    package.save(tmp_path / "p.ditto")
    (tmp_path / "p.ditto" / name).unlink()
    with pytest.raises(InputError, match=f"is no kernel package: No such file or directory: .*{name}"):
        KernelPackage.load(tmp_path / "p.ditto")


def altered(package: KernelPackage, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A saved package whose package.json `change` has changed."""
    package.save(folder)
    path = folder / "package.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("schema", [0, 2, "1", None, [1]])
def test_other_schemas_are_refused(schema: Any, package: KernelPackage, tmp_path: Path) -> None:
    folder = altered(package, tmp_path / "p.ditto", lambda data: data.update(schema=schema))
    with pytest.raises(InputError, match=r"package.json is not of schema 1; compile the kernel again"):
        KernelPackage.load(folder)


@pytest.mark.parametrize("key", ["computation", "chip", "buffers", "launches", "sizes", "plan", "versions", "sha256"])
def test_a_key_that_lacks_is_refused(key: str, package: KernelPackage, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"lacks or misspells .*{key}"):
        KernelPackage.load(altered(package, tmp_path / "p.ditto", lambda data: data.pop(key)))


@pytest.mark.parametrize("key", ["computation", "buffers", "launches", "sha256"])
@pytest.mark.parametrize("value", [1, None, [1], [{}], "text"])
def test_a_value_of_another_kind_is_refused(key: str, value: Any, package: KernelPackage, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        KernelPackage.load(altered(package, tmp_path / "p.ditto", lambda data: data.update({key: value})))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff\xfe"])
def test_text_that_is_no_package_is_refused(text: str, package: KernelPackage, tmp_path: Path) -> None:
    package.save(tmp_path / "p.ditto")
    (tmp_path / "p.ditto" / "package.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"package.json is not"):
        KernelPackage.load(tmp_path / "p.ditto")


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_a_path_that_is_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is no kernel package"):
        KernelPackage.load(tmp_path / name)


def test_values_are_frozen(package: KernelPackage) -> None:
    for value, name in ((package, "chip"), (package.buffers[0], "name"), (package.launches[0], "kernel")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, "other")
    assert isinstance(package.buffers[0], Buffer)
    assert isinstance(package.launches[0], Launch)


# --- Elsewhere ----------------------------------------------------------------------------------------


@pytest.fixture
def saved(package: KernelPackage, tmp_path: Path) -> Path:
    package.save(tmp_path / "p.ditto")
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(np.eye(40)))
    return tmp_path


WITHOUT_MLIR = """
import sys
sys.modules["mlir"] = None
from sparseditto.compiler.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def python(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.skipif(cuda.available() is None, reason="here is a GPU")
def test_a_package_needs_no_mlir_up_to_the_gpu(saved: Path) -> None:
    done = python(WITHOUT_MLIR, saved, "run", "p.ditto", "--bind", "A=a.npz", "--device", "cuda", "--check")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("sparseditto: device: ")
    assert len(done.stderr.splitlines()) == 1
    assert cuda.available() in done.stderr


def test_packing_and_the_reference_need_no_mlir(saved: Path) -> None:
    code = """
import sys
sys.modules["mlir"] = None
from pathlib import Path
from sparseditto.compiler.api import bind_package
from sparseditto.compiler.execute import check, prepare
from sparseditto.compiler.package import KernelPackage
package = KernelPackage.load(Path("p.ditto"))
inputs = prepare(package, bind_package(package, {"A": "a.npz"}))
print(check(package.computation, inputs, inputs.dense["B"]).passed)
assert not [name for name in sys.modules if name.startswith(("mlir.", "pycuda", "networkx"))]
"""
    done = python(code, saved)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n", "the identity times B is B"


def test_compiled_in_one_process_and_run_in_another(tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text(matvec())
    sp.save_npz(tmp_path / "a.npz", sp.random_array((70, 50), density=0.2, rng=np.random.default_rng(0), format="csr"))
    code = "import sys; from sparseditto.compiler.cli.main import main; sys.exit(main(sys.argv[1:]))"
    compiled = python(code, tmp_path, "compile", "k.mlir", "--bind", "A=a.npz", "-o", "out/p.ditto")
    assert compiled.returncode == 0, compiled.stderr
    ran = python(code, tmp_path, "run", "out/p.ditto", "--bind", "A=a.npz", "--device", "simt", "--check")
    assert ran.returncode == 0, ran.stderr
    assert "check passed" in ran.stdout
    assert "0 of 70 components wrong" in ran.stdout
