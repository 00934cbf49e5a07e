"""The counters' own SQLite file (spec O1, D2): totals survive a restart, and its death changes a metric only (O4).

Nothing here raises into the caller or makes it wait: a full, missing or hanging disk is counted in
`PersistenceHealth`, which the exporter shows. Totals are written as absolute values, so that a write whose outcome is
unknown may be repeated; and nothing is written before the file was read once, so that a disk that comes back late
cannot wipe the totals of earlier lives.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiosqlite

from bus.ids import now
from observability.counters import ALL_SERIES, Counters, Series
from observability.sqlite import connect

FLUSH_TIMEOUT_S: Final = 5.0
_BUSY_TIMEOUT_S: Final = 1.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS operation_totals (
    operation TEXT NOT NULL,
    outcome TEXT NOT NULL,
    total INTEGER NOT NULL CHECK (total >= 0),
    PRIMARY KEY (operation, outcome)
) STRICT, WITHOUT ROWID
"""
_WRITE: Final = (
    "INSERT INTO operation_totals (operation, outcome, total) VALUES (?, ?, ?)"
    " ON CONFLICT (operation, outcome) DO UPDATE SET total = excluded.total"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistenceState:
    """What the exporter shows.

    Attributes:
        failures: writes and reads that failed or took longer than the timeout, in this process.
        healthy: did the last attempt succeed? False before the first.
        last_success_timestamp_s: when totals were last on disk, seconds since the epoch; 0.0 for never.
        reason: the kind of the last failure, for the log; never a path.
    """

    failures: int = 0
    healthy: bool = False
    last_success_timestamp_s: float = 0.0
    reason: str | None = None


class PersistenceHealth:
    """The one writer's account of itself, read from the exporter's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = PersistenceState()

    def succeeded(self) -> None:
        """An attempt reached the disk."""
        with self._lock:
            self._state = PersistenceState(
                failures=self._state.failures, healthy=True, last_success_timestamp_s=now().timestamp()
            )

    def failed(self, reason: str) -> None:
        """An attempt did not."""
        with self._lock:
            self._state = PersistenceState(
                failures=self._state.failures + 1,
                last_success_timestamp_s=self._state.last_success_timestamp_s,
                reason=reason,
            )

    def snapshot(self) -> PersistenceState:
        """The state at this moment."""
        with self._lock:
            return self._state


class CounterStore:
    """Writes the totals of one `Counters` to one file.

    A connection lives for one attempt only: it is closed on every path (aiosqlite keeps the process alive for a
    connection that was forgotten), and a file that was replaced or comes back heals by itself.
    """

    def __init__(self, path: Path, *, flush_timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        self.health = PersistenceHealth()
        self._path = path
        self._flush_timeout_s = flush_timeout_s
        self._earlier: dict[Series, int] | None = None
        self._restored = False
        self._attempt: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, *, flush_timeout_s: float = FLUSH_TIMEOUT_S) -> CounterStore:
        """A store that has read the totals of earlier lives, unless the disk fails: see `health`. Never raises."""
        store = cls(path, flush_timeout_s=flush_timeout_s)
        await store.flush(None)
        return store

    async def run(self, counters: Counters, interval_s: float) -> None:
        """Restore the earlier totals, then flush every `interval_s` seconds until cancelled, and once more then."""
        try:
            while True:
                await self.flush(counters)
                await asyncio.sleep(interval_s)
        finally:
            await self.flush(counters)

    async def flush(self, counters: Counters | None) -> None:
        """Bring the totals to disk (`None`: only read the earlier ones); a failure is counted, never raised.

        An attempt that hangs is left behind after the timeout and waited for by the next flush: there is never
        more than one.
        """
        if self._attempt is not None and not await self._settled(self._attempt):
            return
        self._attempt = asyncio.create_task(self._once(counters), name="counter-flush")
        await self._settled(self._attempt)

    async def _settled(self, attempt: asyncio.Task[None]) -> bool:
        finished, _ = await asyncio.wait({attempt}, timeout=self._flush_timeout_s)
        if not finished:
            self.health.failed("the disk did not answer in time")
            return False
        self._attempt = None
        return True

    async def _once(self, counters: Counters | None) -> None:
        try:
            await self._exchange(counters)
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            self.health.failed(type(error).__name__)
        else:
            self.health.succeeded()

    async def _exchange(self, counters: Counters | None) -> None:
        connection = await connect(self._path, busy_timeout_s=_BUSY_TIMEOUT_S)
        try:
            await connection.execute(_SCHEMA)
            if self._earlier is None:
                self._earlier = await _read(connection)
            if counters is None:
                return
            if not self._restored:
                counters.restore(self._earlier)
                self._restored = True
            rows = [(*series, total) for series, total in counters.snapshot().items()]
            await connection.execute("BEGIN IMMEDIATE")
            await connection.executemany(_WRITE, rows)
            await connection.execute("COMMIT")
        finally:
            await connection.close()


async def _read(connection: aiosqlite.Connection) -> dict[Series, int]:
    """The stored totals; a series of a newer version stays in the file untouched."""
    known = {(operation.value, outcome.value): (operation, outcome) for operation, outcome in ALL_SERIES}
    async with connection.execute("SELECT operation, outcome, total FROM operation_totals") as cursor:
        return {known[row[0], row[1]]: int(row[2]) async for row in cursor if (row[0], row[1]) in known}
