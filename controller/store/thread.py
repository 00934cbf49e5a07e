"""One SQLite connection on a thread of its own, driven by closures instead of single statements.

A transaction that crosses threads once is four times as fast as one that crosses for each statement, and no other
coroutine can slip a statement into it. aiosqlite has no public way to run a closure, so its one private method is
used here and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import aiosqlite

from bus.errors import ErrorCode, ModelForgeError
from observability.sqlite import connect

T = TypeVar("T")
BUSY_TIMEOUT_MS: Final = 5_000
_PRIMARY: Final = 0xFF
# The disk, not the statement: nothing of the transaction stays, and the same request may be sent again.
_DISK: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def is_disk_error(error: BaseException) -> bool:
    """Did the storage fail (full, read-only, unreadable, locked by another), as opposed to a rule of the schema?"""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & _PRIMARY in _DISK


def unavailable(error: BaseException) -> ModelForgeError:
    """STORE_UNAVAILABLE for a disk error, with SQLite's name of it."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    return ModelForgeError(ErrorCode.STORE_UNAVAILABLE, f"the ledger's disk refused: {error}", sqlite=name)


class SqliteThread:
    """A connection and its thread. `close` must be reached on every path, or the process never exits."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, path: Path, *, read_only: bool) -> SqliteThread:
        """Open `path` in WAL mode with `synchronous=FULL` and foreign keys on.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE when the file cannot be opened, STORE_SCHEMA_MISMATCH when it is no
                SQLite database.
        """
        try:
            if not read_only:
                _create_private(path)
            thread = cls(await _connect(path))
        except (sqlite3.Error, OSError) as error:
            raise _cannot_open(path, error) from error
        try:
            await thread.call(lambda connection: _prepare(connection, read_only=read_only))
        except sqlite3.Error as error:
            await thread.close()
            raise _cannot_open(path, error) from error
        except BaseException:
            await thread.close()
            raise
        return thread

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on the thread. It goes on to its end there when the caller is cancelled."""
        connection = self._connection
        run: Callable[..., T] = lambda: function(connection._conn)  # noqa: E731, SLF001 -- see the module's text
        return await connection._execute(run)  # type: ignore[no-any-return,no-untyped-call]  # noqa: SLF001

    async def close(self) -> None:
        """Close the connection and end its thread; a second call does nothing."""
        await asyncio.shield(self._connection.close())


async def _connect(path: Path) -> aiosqlite.Connection:
    """Connect; a caller cancelled meanwhile leaves no thread behind that would keep the process alive."""
    task = asyncio.ensure_future(connect(path))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await (await task).close()
        raise


def _create_private(path: Path) -> None:
    """Make the file readable by its owner only; SQLite gives its side files the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _prepare(connection: sqlite3.Connection, *, read_only: bool) -> None:
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        message = f"the state folder's file system does not support SQLite's WAL mode (it gives {mode})"
        raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, message)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Without it INSERT OR REPLACE removes a row and no trigger sees it: the audit trail could be rewritten.
    connection.execute("PRAGMA recursive_triggers = ON")
    if read_only:
        connection.execute("PRAGMA query_only = ON")


def _cannot_open(path: Path, error: Exception) -> ModelForgeError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CANTOPEN)
    if code & _PRIMARY == sqlite3.SQLITE_NOTADB:
        return ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, f"{path} is not a ledger: {error}")
    reason = getattr(error, "strerror", None) or error
    return ModelForgeError(ErrorCode.STORE_UNAVAILABLE, f"the ledger {path} cannot be opened: {reason}")
