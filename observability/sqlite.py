"""The one way to open an aiosqlite connection: a failed open leaves no thread behind.

The counters' own file and the controller's ledger are opened by it; it stands in the lower of their two rooms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import aiosqlite

_STOP_LIMIT_S: Final = 1.0


async def connect(path: Path, *, busy_timeout_s: float = 5.0) -> aiosqlite.Connection:
    """Open `path` in autocommit mode; whoever gets the connection must close it, or the process never exits.

    Raises:
        sqlite3.Error: the file cannot be opened.
    """
    connection = aiosqlite.connect(path, timeout=busy_timeout_s, isolation_level=None)
    try:
        return await connection
    except BaseException:
        # aiosqlite asks its thread to stop and does not wait for it: when the loop ends first, the thread dies in a
        # traceback on the operator's screen. It has nothing left to do, so this takes microseconds.
        connection._thread.join(_STOP_LIMIT_S)  # noqa: SLF001 -- there is no public way to wait for it
        raise
