"""What a feature is: a field of a frozen dataclass that says its kind, its unit and its formula.

`feature` declares one, as `option` declares an option of a pass, and `definitions` reads them back: the command line and
`docs/features.md` are made of that, so a feature is described where it stands and nowhere else.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any


class Kind(Enum):
    """What a feature follows from."""

    PATTERN = "pattern"  # the matrix alone
    REPRESENTATION = "representation"  # how it may be stored
    OPERATOR = "operator"  # what is computed with it
    HARDWARE = "hardware"  # where that runs


@dataclasses.dataclass(frozen=True)
class Definition:
    """One feature.  If `estimated`, it is an estimate where a matrix is sampled; `source` names where a formula is from."""

    name: str
    kind: Kind
    unit: str
    formula: str
    source: str
    estimated: bool

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"kind": self.kind.value}


def feature(
    formula: str, *, kind: Kind, unit: str, source: str = "", estimated: bool = False, default: Any = dataclasses.MISSING
) -> Any:
    """A field that is a feature; the arguments are those of `Definition`."""
    metadata = {"kind": kind, "unit": unit, "formula": formula, "source": source, "estimated": estimated}
    return dataclasses.field(default=default, metadata=metadata)


def definitions_of(cls: type[Any]) -> tuple[Definition, ...]:
    """The features that a dataclass declares, in the order of its fields."""
    return tuple(Definition(field.name, **field.metadata) for field in dataclasses.fields(cls) if field.metadata)
