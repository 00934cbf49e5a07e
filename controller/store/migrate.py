"""Numbered, append-only migrations; `PRAGMA user_version` is the number of the last one applied."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from bus.errors import ErrorCode, ModelForgeError

# "MFLG" in the file's header: another program's database is refused instead of being migrated.
APPLICATION_ID: Final = 0x4D464C47
_FILE: Final = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str


def load_migrations() -> tuple[Migration, ...]:
    """All steps, 1 to n without a gap."""
    steps = []
    for entry in files("controller.store").joinpath("migrations").iterdir():
        match = _FILE.match(entry.name)
        if match is not None:
            steps.append(Migration(int(match.group(1)), entry.name, entry.read_text(encoding="utf-8")))
    steps.sort(key=lambda step: step.number)
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise ModelForgeError(ErrorCode.INTERNAL, "the migrations are not numbered 1 to n without a gap")
    return tuple(steps)


def migrate(connection: sqlite3.Connection, steps: Sequence[Migration]) -> int:
    """Bring the ledger to the newest schema, each step in a transaction of its own; the schema version.

    Raises:
        ModelForgeError: STORE_SCHEMA_MISMATCH when the file belongs to another program, is newer than this version,
            or does not have the schema that its version number promises.
    """
    version = _pragma(connection, "user_version")
    application = _pragma(connection, "application_id")
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application != APPLICATION_ID and not is_empty:
        raise ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, "the file is the database of another program")
    if version > len(steps):
        message = f"the ledger has schema {version}, this version knows up to {len(steps)}"
        raise ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, message, ledger=version, known=len(steps))
    for step in steps[version:]:
        _apply(connection, step)
    if schema(connection) != _expected(steps):
        message = f"the ledger's tables are not those of schema {len(steps)}"
        raise ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, message)
    return len(steps)


def _apply(connection: sqlite3.Connection, step: Migration) -> None:
    """One step and its number, together or not at all (executescript alone would commit statement by statement).

    Foreign keys are off meanwhile, because a table that is made anew is gone for a moment; they are checked as a whole
    before the step is committed.

    Raises:
        ModelForgeError: STORE_SCHEMA_MISMATCH when a row would point to nothing or breaks a rule of the new schema.
    """
    enforced = _pragma(connection, "foreign_keys")
    connection.execute("PRAGMA foreign_keys = OFF")  # has no effect inside a transaction
    # SQLite has it by itself from 3.41 on only.
    connection.create_function("unhex", 1, _unhex, deterministic=True)
    script = (
        f"BEGIN IMMEDIATE;\n{step.sql}\nPRAGMA application_id = {APPLICATION_ID};\n"
        f"PRAGMA user_version = {step.number};\n"
    )
    try:
        connection.executescript(script)
        _check_references(connection, step)
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.IntegrityError):
            message = f"the ledger cannot be brought to schema {step.number}: a row breaks a rule ({error})"
            raise ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, message) from error
        raise
    finally:
        connection.execute(f"PRAGMA foreign_keys = {enforced}")


def _unhex(text: object) -> bytes | None:
    """As SQLite's own: NULL for what is no hexadecimal text."""
    try:
        return bytes.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _check_references(connection: sqlite3.Connection, step: Migration) -> None:
    row = connection.execute("PRAGMA foreign_key_check").fetchone()
    if row is not None:
        message = f"the ledger cannot be brought to schema {step.number}: a row of {row[0]} would point to no {row[2]}"
        raise ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, message)


def schema(connection: sqlite3.Connection) -> dict[str, str]:
    """Every table, index and trigger with its SQL, blanks made equal."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
    return {f"{row[0]} {row[1]}": " ".join(row[2].split()) for row in rows if not row[1].startswith("sqlite_")}


def _expected(steps: Sequence[Migration]) -> dict[str, str]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for step in steps:
            _apply(connection, step)
        return schema(connection)
    finally:
        connection.close()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
