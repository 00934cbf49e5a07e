"""The ledger's one writer: closures, grouped into one commit, each inside a savepoint of its own.

A commit costs one flush to the disk. Changes that wait while another is flushed are committed together; one that
fails takes back its own savepoint and nothing else. A cancelled caller does not stop a change that was handed in:
it commits or fails as a whole.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from bus.errors import ErrorCode, ModelForgeError
from controller.store.migrate import load_migrations, migrate
from controller.store.quota import Quota
from controller.store.thread import SqliteThread, is_disk_error, unavailable
from controller.store.tx import Tx
from controller.store.watch import FileWatch

T = TypeVar("T")
MAX_GROUP_CHANGES: Final = 64
MAX_WAITING_CHANGES: Final = 4_096


@dataclass(slots=True)
class _Member:
    """One change of a group: its closure, who waits for it, and what became of it (set on the thread)."""

    change: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None
    wrote_outbox: bool = False


@dataclass(slots=True)
class _Queue:
    waiting: deque[_Member] = field(default_factory=deque)
    drainer: asyncio.Task[None] | None = None
    closing: bool = False


class Store:
    """The ledger. Open it with `async with await Store.open(path) as store`, or reach `close` on every path.

    Attributes:
        schema_version: number of the newest migration.
        on_commit: called in the event loop after a commit that put something into the outbox.
    """

    def __init__(self, writer: SqliteThread, reader: SqliteThread, schema_version: int, watch: FileWatch) -> None:
        self._watch = watch
        self._writer = writer
        self._reader = reader
        self._queue = _Queue()
        self._quota = Quota()
        self.schema_version = schema_version
        self.on_commit: list[Callable[[], None]] = []

    @classmethod
    async def open(cls, path: Path) -> Store:
        """Open the ledger, make it when there is none, and bring it to the newest schema.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE, or STORE_SCHEMA_MISMATCH for a newer or a foreign file.
        """
        steps = load_migrations()
        writer = await SqliteThread.open(path, read_only=False)
        try:
            try:
                version = await writer.call(lambda connection: migrate(connection, steps))
            except sqlite3.Error as error:
                if is_disk_error(error):
                    raise unavailable(error) from error
                raise
            watch = _watch(path)
            reader = await SqliteThread.open(path, read_only=True)
        except BaseException:
            await writer.close()
            raise
        return cls(writer, reader, version, watch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def write(self, change: Callable[[Tx], T]) -> T:
        """Run `change` in a transaction and return what it returned, after the commit is on the disk.

        Whatever `change` raises takes back all that it did, and is raised here.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE when the disk refused (nothing was committed), when the ledger's file is
                no longer the one that was opened, when it is being closed, or when too many changes wait.
        """
        queue = self._queue
        if queue.closing or len(queue.waiting) >= MAX_WAITING_CHANGES:
            reason = "is being closed" if queue.closing else "has too many changes waiting"
            raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, f"the ledger {reason}")
        member = _Member(change, asyncio.get_running_loop().create_future())
        queue.waiting.append(member)
        if queue.drainer is None or queue.drainer.done():
            queue.drainer = asyncio.create_task(self._drain(), name="ledger-writer")
        result: T = await asyncio.shield(member.future)
        return result

    async def read(self, view: Callable[[Tx], T]) -> T:
        """Run `view` on one consistent picture of the ledger; it cannot change anything.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE when the file cannot be read or the ledger is closed.
        """
        if self._queue.closing:
            raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, "the ledger is being closed")
        try:
            return await self._reader.call(lambda connection: _read(connection, view))
        except sqlite3.Error as error:
            if is_disk_error(error):
                raise unavailable(error) from error
            raise

    async def close(self) -> None:
        """Finish the changes that wait, then close both connections. A second call does nothing."""
        self._queue.closing = True
        try:
            drainer = self._queue.drainer
            if drainer is not None and not drainer.done():
                await asyncio.shield(drainer)
        finally:
            try:
                await self._reader.close()
            finally:
                await self._writer.close()

    async def _drain(self) -> None:
        queue = self._queue
        while queue.waiting:
            group = [queue.waiting.popleft() for _ in range(min(len(queue.waiting), MAX_GROUP_CHANGES))]
            try:
                await self._writer.call(partial(_commit, group=group, quota=self._quota, watch=self._watch))
            except BaseException as error:
                _abandon((*group, *queue.waiting), error)
                queue.waiting.clear()
                raise
            for member in group:
                _resolve(member)
            if any(member.wrote_outbox for member in group):
                # Scheduled, not called: a hook that raises must not stop the writer.
                for hook in self.on_commit:
                    asyncio.get_running_loop().call_soon(hook)


def _resolve(member: _Member) -> None:
    if member.error is None:
        member.future.set_result(member.value)
    else:
        member.future.set_exception(member.error)


def _abandon(members: Iterable[_Member], error: BaseException) -> None:
    """The writer itself ended (its loop is torn down, or a defect): nobody may wait for ever."""
    for member in members:
        if isinstance(error, asyncio.CancelledError):
            member.future.cancel()
        else:
            member.future.set_exception(error)


def _watch(path: Path) -> FileWatch:
    try:
        return FileWatch(path)
    except OSError as error:
        message = f"the ledger {path} went away while it was opened: {error.strerror}"
        raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, message) from error


def _commit(connection: sqlite3.Connection, group: list[_Member], quota: Quota, watch: FileWatch) -> None:
    """Run a group on the writer's thread; afterwards each member has a value or an error."""
    fault = watch.fault()
    if fault is not None:
        for member in group:
            member.error = ModelForgeError(fault.code, fault.message, hint=fault.hint)
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        for member in group:
            _run_member(connection, member, quota)
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not is_disk_error(error):
            raise
        for member in group:
            member.value, member.wrote_outbox = None, False
            member.error = unavailable(error)


def _run_member(connection: sqlite3.Connection, member: _Member, quota: Quota) -> None:
    tx = Tx(connection, quota)
    connection.execute("SAVEPOINT change")
    try:
        member.value = member.change(tx)
    except Exception as error:
        if is_disk_error(error):
            # SQLite may have taken back the whole transaction already: the group ends as one.
            raise
        connection.execute("ROLLBACK TO change")
        member.error = error
    else:
        member.wrote_outbox = tx.wrote_outbox
    connection.execute("RELEASE change")


def _read(connection: sqlite3.Connection, view: Callable[[Tx], T]) -> T:
    connection.execute("BEGIN")
    try:
        return view(Tx(connection))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
