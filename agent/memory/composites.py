"""Composite passes that a database keeps, and how a process comes to know them.

They are kept as they were written, whether or not the passes of today can read them: other passes may be there another day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.keys import canonical
from sparseditto.dialects.errors import PlanError
from sparseditto.passes.composite import Composite, read, register

Definition = Mapping[str, Any]
"""A composite as JSON (`Composite.to_json`), checked or not."""


def definitions(database: Database) -> list[Definition]:
    """All composites that are kept, by name."""
    return [json.loads(row[0]) for row in database.rows("SELECT definition FROM composites ORDER BY name")]


def keep(database: Database, composite: Composite) -> bool:
    """Keep a composite, and say whether it was not there yet.  Raises `PlanError` where its name is another one's."""
    with database.transaction():
        new = put(database, composite.to_json())
    if new is None:
        raise PlanError(
            f"another one is kept under its name in {database.where}; give it another name, or remove that one "
            f"(`sparseditto db prune --composite {composite.name}`)",
            where=f"composite '{composite.name}'",
        )
    return new


def put(database: Database, definition: Definition) -> bool | None:
    """`keep` within a transaction; None where its name is another one's, which stays."""
    text = canonical(dict(definition))
    if database.change(
        "INSERT INTO composites (name, definition) VALUES (?, ?) ON CONFLICT DO NOTHING", (definition["name"], text)
    ):
        return True
    there = database.rows("SELECT definition FROM composites WHERE name = ?", (definition["name"],))
    return False if there[0][0] == text else None


def know(database: Database) -> tuple[str, ...]:
    """Register all composites that are kept; says which could not be, and why."""
    notes = []
    for definition in definitions(database):
        try:
            register(read(definition))
        except PlanError as e:
            notes.append(f"a composite pass of the database is left out: {e}")
    return tuple(notes)


def know_those_of(path: Path | None) -> tuple[str, ...]:
    """`know` of a database file; nothing where there is none."""
    if path is None or not path.is_file():
        return ()
    with Database(path) as database:
        return know(database)
