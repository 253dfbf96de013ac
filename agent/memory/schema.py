"""The tables, and the steps that bring a database from each older version to the present one."""

from __future__ import annotations

import sqlite3

from sparseditto.dialects.errors import InputError

APPLICATION = 0x53706474  # `PRAGMA application_id`: this file is a tuning database ("Spdt")

_FIRST = (
    """CREATE TABLE structures (
        id INTEGER PRIMARY KEY,
        pattern TEXT NOT NULL UNIQUE,
        rows INTEGER NOT NULL CHECK (rows >= 0),
        columns INTEGER NOT NULL CHECK (columns >= 0),
        entries INTEGER NOT NULL CHECK (entries >= 0),
        features TEXT)""",
    """CREATE TABLE operators (
        id INTEGER PRIMARY KEY,
        kernel TEXT NOT NULL,
        encoding TEXT NOT NULL,
        dtypes TEXT NOT NULL,
        computation TEXT NOT NULL,
        UNIQUE (kernel, encoding))""",
    """CREATE TABLE gpus (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        capability TEXT NOT NULL,
        UNIQUE (name, capability))""",
    """CREATE TABLE compilers (
        id INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        mlir TEXT NOT NULL,
        llvm TEXT NOT NULL,
        code TEXT NOT NULL,
        UNIQUE (project, mlir, llvm, code))""",
    """CREATE TABLE environments (
        id INTEGER PRIMARY KEY,
        versions TEXT NOT NULL UNIQUE)""",
    """CREATE TABLE plans (
        id INTEGER PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        kernel TEXT NOT NULL,
        steps TEXT NOT NULL)""",
    """CREATE TABLE tasks (
        id INTEGER PRIMARY KEY,
        structure INTEGER NOT NULL REFERENCES structures,
        operator INTEGER NOT NULL REFERENCES operators,
        K TEXT NOT NULL,
        chip TEXT NOT NULL,
        gpu INTEGER NOT NULL REFERENCES gpus,
        compiler INTEGER NOT NULL REFERENCES compilers,
        caches TEXT NOT NULL,
        UNIQUE (structure, operator, K, chip, gpu, compiler, caches))""",
    """CREATE TABLE trials (
        id INTEGER PRIMARY KEY,
        task INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
        plan INTEGER NOT NULL REFERENCES plans,
        outcome TEXT NOT NULL,
        verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
        us REAL CHECK (us >= 0),
        iqr_us REAL,
        samples INTEGER NOT NULL,
        UNIQUE (task, plan))""",
    """CREATE TABLE measurements (
        id INTEGER PRIMARY KEY,
        trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE,
        environment INTEGER NOT NULL REFERENCES environments,
        digest TEXT NOT NULL,
        measured_at TEXT NOT NULL,
        outcome TEXT NOT NULL,
        why TEXT NOT NULL,
        identity TEXT NOT NULL,
        samples_us TEXT NOT NULL,
        verification TEXT,
        resources TEXT,
        seconds TEXT NOT NULL,
        UNIQUE (trial, digest))""",
    "CREATE INDEX tasks_by_operator ON tasks (operator, gpu)",
    "CREATE INDEX trials_by_time ON trials (task, verified, us)",
)
_REMARKS = (
    "ALTER TABLE tasks ADD COLUMN about TEXT NOT NULL DEFAULT '{}'",  # what whoever measured says of the task
    "CREATE INDEX trials_by_plan ON trials (plan)",
    "CREATE INDEX measurements_by_time ON measurements (measured_at)",
    "CREATE INDEX measurements_by_environment ON measurements (environment)",
)
_COMPOSITES = (
    """CREATE TABLE composites (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        definition TEXT NOT NULL)""",
)
MIGRATIONS = (_FIRST, _REMARKS, _COMPOSITES)
"""The statements that lead from version n to n + 1."""
VERSION = len(MIGRATIONS)


def migrate(db: sqlite3.Connection, where: str) -> None:
    """Bring a database (a new one is of version 0) to the present version, one step after the other, all or nothing.

    Raises `InputError` for a newer version, and for a database that is something else.
    """
    if _version(db) == VERSION and _is_ours(db):
        return
    db.execute("BEGIN IMMEDIATE")  # another process may do the same
    try:
        version = _version(db)
        if not _is_ours(db) and (version or db.execute("SELECT 1 FROM sqlite_master").fetchone()):
            raise InputError("is no tuning database; choose another file", where=where)
        if version > VERSION:
            raise InputError(
                f"is of schema {version}, this release reads up to {VERSION}: use the release that wrote it "
                "(`sparseditto db export` there, `sparseditto db import` here), or another file",
                where=where,
            )
        for step in MIGRATIONS[version:]:
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _is_ours(db: sqlite3.Connection) -> bool:
    return bool(db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION)
