"""Every pass by its name.

A pass file in `representation/`, `schedule/`, `mapping/` or `lowering/` is found by scanning; a module named by an
entry point of the group `sparseditto.passes`, or by `--load FILE`, registers more when it is imported.  Composite passes
(`composite.register`) are data and come from anywhere.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn, TypeVar

from sparseditto.dialects.errors import InputError, PlanError, did_you_mean
from sparseditto.passes.base import Pass
from sparseditto.passes.upstream import upstream_names

ENTRY_POINT_GROUP = "sparseditto.passes"
FOLDERS = ("representation", "schedule", "mapping", "lowering")

P = TypeVar("P", bound=type[Pass])
_passes: dict[str, type[Pass]] = {}
loaded: list[Path] = []
"""The files that `load_file` was given: a command that repeats a fault must load them too."""


def register(cls: P) -> P:
    """Class decorator: make a pass known under its `name`.  Raises `PlanError` when the name is taken, or upstream's."""
    if cls.name in upstream_names():
        raise PlanError(f"{cls.__module__} registers a pass '{cls.name}', which is upstream's name of one; give it another")
    taken = _passes.get(cls.name)
    if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise PlanError(f"{cls.__module__} registers a pass '{cls.name}', which {taken.__module__} has already")
    _passes[cls.name] = cls
    return cls


def forget(cls: type[Pass]) -> None:
    """Make a pass unknown again."""
    if _passes.get(cls.name) is cls:
        del _passes[cls.name]


def registry() -> dict[str, type[Pass]]:
    """All passes by name, own and plugged in; the first call imports them."""
    _scan()
    return _passes


@cache
def _scan() -> None:
    for folder in FOLDERS:
        package = importlib.import_module(f"sparseditto.passes.{folder}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        entry.load()


def find(name: str) -> type[Pass]:
    """The pass of that name.  Raises `PlanError` with the nearest name when there is none."""
    known = registry()
    if name not in known:
        raise PlanError(f"no pass is named '{name}'{did_you_mean(name, known)}")
    return known[name]


def _module_name(path: Path) -> str:
    """A name by which a plugin is imported; another file of the same stem gets another one."""
    name = f"sparseditto_plugin_{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is None or Path(loaded.__file__ or "").resolve() == path.resolve():
        return name
    return f"{name}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"


def load_file(path: Path) -> None:
    """Import a Python file that registers passes, or register the composite pass of a `.json` file.

    Raises `InputError` when it cannot be read or imported, `PlanError` for a composite that is none.
    """
    registry()
    loaded.append(path)
    if path.suffix == ".json":
        from sparseditto.passes.composite import load

        load(path)
    else:
        _import(path)


class _FreshLoader(SourceFileLoader):
    """Reads a file each time anew, and leaves nothing compiled beside it."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError(f"what is compiled of {path} is not kept")  # as `importlib.abc.SourceLoader` has it


def _import(path: Path) -> None:
    name = _module_name(path)
    loader = _FreshLoader(name, str(path)) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError("is no Python file to load passes from", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PlanError:
        raise
    except (Exception, SystemExit) as e:  # whatever a user's file raises is the file's fault, and we say so
        del sys.modules[name]
        raise InputError(f"cannot be loaded: {type(e).__name__}: {e}", where=str(path)) from e
