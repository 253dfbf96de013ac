"""`KernelPackage`: a compiled kernel as a folder that runs on a machine without MLIR.

The folder holds `kernel.ptx`, what the GPU runs; `kernel.mlir`, the same kernel at S4, which the emulator runs; and
`package.json`, everything else: launches, buffers, the computation with its packing recipe, plan, versions, hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparseditto.compiler.computation import Computation, Scalar
from sparseditto.dialects.errors import InputError

SCHEMA = 1


@dataclass(frozen=True)
class Buffer:
    """One pointer argument.

    `shape` holds size expressions (`sizes.evaluate`), row-major, contiguous.  `name` is an operand's name for a dense
    operand, and `A.positions1`, `A.coordinates1` or `A.values` for a part of a packed one (whose length is the size
    `A.values.length`).  `access` is "read", "write" or "readwrite".  `dtype` is NumPy's name.  `recipe` says
    how the host computes an auxiliary array (`dialects.recipes`) from the operand that the name begins with.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    access: str
    recipe: str = ""


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `grid` holds size expressions; `arguments` name buffers (pointers), sizes (int64) and scalars.

    `overlap` says that the kernel waits by itself for what comes before it in the stream, so that it may start earlier.
    """

    kernel: str
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    arguments: tuple[str, ...]
    shared_bytes: int = 0
    overlap: bool = False


@dataclass(frozen=True)
class KernelPackage:
    """See the module.  `chip` is the PTX target (sm_90); `sizes` are those that were fixed when it was compiled.

    `provenance` says where the plan comes from: its `plan` is "given", "planner", "tuning" or "database"; for the last two the
    time that was measured stands beside it, and on which GPU; `model` is the language model that found it, where one did.
    """

    computation: Computation
    chip: str
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    sizes: dict[str, int]
    plan: dict[str, Any]
    versions: dict[str, str]
    ptx: str = field(repr=False)
    mlir: str = field(repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The numbers that launches are given."""
        return self.computation.scalars

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def writes(self, name: str) -> bool:
        """Whether the kernel writes the buffer of that name."""
        return any(b.name == name and b.access != "read" for b in self.buffers)

    def to_json(self) -> dict[str, Any]:
        """All but the two texts, with their SHA-256."""
        return {
            "schema": SCHEMA,
            "computation": self.computation.to_json(),
            "chip": self.chip,
            "buffers": [asdict(b) for b in self.buffers],
            "launches": [asdict(launch) for launch in self.launches],
            "sizes": self.sizes,
            "plan": self.plan,
            "versions": self.versions,
            "provenance": dict(self.provenance),
            "sha256": {"kernel.ptx": _sha(self.ptx), "kernel.mlir": _sha(self.mlir)},
        }

    def save(self, folder: Path) -> None:
        """Write the folder, whole or not at all.  Replaces an older package there; refuses to replace anything else."""
        named, folder = folder, Path(os.path.realpath(folder))
        if folder.exists() and not (folder / "package.json").is_file() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError("exists and is no kernel package; choose another output", where=str(named))
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        except OSError as e:
            raise InputError(f"cannot write there: {e.strerror}", where=str(named)) from e
        try:
            (temporary / "kernel.ptx").write_text(self.ptx, encoding="utf-8")
            (temporary / "kernel.mlir").write_text(self.mlir, encoding="utf-8")
            (temporary / "package.json").write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
            temporary.chmod(0o755)
            if folder.exists():
                old = temporary.with_name(temporary.name + ".old")
                os.replace(folder, old)
                try:
                    os.replace(temporary, folder)
                except OSError:
                    os.replace(old, folder)
                    raise
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(temporary, folder)
        except OSError as e:
            raise InputError(f"cannot write there: {e.strerror}", where=str(named)) from e
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    @staticmethod
    def load(folder: Path) -> KernelPackage:
        """Read a folder that `save` wrote.  Raises `InputError` when it is incomplete, altered or of another schema."""
        where = str(folder)
        try:
            data = json.loads((folder / "package.json").read_text(encoding="utf-8"))
            texts = {name: (folder / name).read_text(encoding="utf-8") for name in ("kernel.ptx", "kernel.mlir")}
        except OSError as e:
            raise InputError(f"is no kernel package: {e.strerror}: {e.filename}", where=where) from e
        except ValueError as e:
            raise InputError(f"package.json is not JSON: {e}", where=where) from e
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise InputError(f"package.json is not of schema {SCHEMA}; compile the kernel again", where=where)
        try:
            for name, text in texts.items():
                if data["sha256"][name] != _sha(text):
                    raise InputError(f"{name} is not the file that was compiled (its hash differs)", where=where)
            return KernelPackage(
                computation=Computation.from_json(data["computation"]),
                chip=data["chip"],
                buffers=tuple(Buffer(**{**b, "shape": tuple(b["shape"])}) for b in data["buffers"]),
                launches=tuple(
                    Launch(
                        launch["kernel"],
                        tuple(launch["grid"]),
                        tuple(launch["block"]),
                        tuple(launch["arguments"]),
                        launch["shared_bytes"],
                        launch.get("overlap", False),
                    )
                    for launch in data["launches"]
                ),
                sizes=data["sizes"],
                plan=data["plan"],
                versions=data["versions"],
                ptx=texts["kernel.ptx"],
                mlir=texts["kernel.mlir"],
                provenance=data.get("provenance", {}),
            )
        except (KeyError, TypeError) as e:
            raise InputError(f"package.json lacks or misspells {e}", where=where) from e


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
