"""From the ledger to the bus: rows are published in order and removed once the server has them on its disk.

A publish whose outcome is unknown is simply repeated. Events carry a dedupe id. Jobs do not (a job that is published
again on purpose must not be swallowed); there the stream's guard of one message per subject refuses the second one,
and the stored message is compared before it counts as published.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from bus import subjects
from bus.client import AlreadyQueued, BusClient, JsError
from bus.errors import ErrorCode, ModelForgeError
from bus.streams import delete_message, last_message
from controller import jobs
from controller.loops import Wake
from controller.store.connection import Store
from controller.store.rows import Row
from controller.store.tx import Tx
from controller.tally import ended
from observability.counters import Counters

BATCH_ROWS: Final = 64
IDLE_WAIT_S: Final = 5.0
# A server that dies with a publish in the air never answers it: a retry is harmless, so it comes soon.
PUBLISH_TIMEOUT_S: Final = 2.0
GUARD_TRIES: Final = 3
# A server whose disk was full goes on answering and stores nothing, for ever (nats-server 2.15.1): so many unanswered
# publishes in a row, over a connection that works, are said aloud. `modelforge up` then starts the server again.
DEGRADED_AFTER: Final = 3
DEFECT_TRIES: Final = 5
_log: Final = logging.getLogger("controller.outbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A row that needs no further publishing. Without a stream it was dropped, for the reason in `failure`."""

    row_id: int
    job_id: str | None = None
    stream: str | None = None
    sequence: int = 0
    failure: ModelForgeError | None = None


class Outbox:
    """The one publisher of jobs and events. It never blocks a commit: commits only wake it."""

    def __init__(
        self, store: Store, client: BusClient, counters: Counters, on_missing_stream: Callable[[], None]
    ) -> None:
        self._counters = counters
        self._store = store
        self._client = client
        self._on_missing_stream = on_missing_stream
        self._wake = Wake()
        self._drain = asyncio.Lock()
        self._defects: Counter[int] = Counter()
        self._unanswered: Counter[str] = Counter()

    def degraded(self) -> dict[str, str]:
        """The streams that stored nothing of late though the server answers, in words that begin with `degraded`."""
        return {
            stream: f"degraded: {count} publishes in a row were not stored, though the server answers"
            for stream, count in self._unanswered.items()
            if count >= DEGRADED_AFTER
        }

    def wake(self) -> None:
        """Something was committed."""
        self._wake.set()

    async def step(self) -> None:
        """Publish everything that waits, then wait for the next commit.

        Raises:
            ModelForgeError: what stopped it (NOT_CONNECTED, REQUEST_TIMEOUT, STORE_UNAVAILABLE); nothing is lost.
        """
        await self.drain()
        await self._wake.wait(IDLE_WAIT_S)

    async def drain(self) -> None:
        """Publish until the outbox is empty; raises as `step` does."""
        async with self._drain:
            while rows := await self._store.read(_waiting):
                await self._publish_batch(rows)

    async def _publish_batch(self, rows: list[tuple[Row, bool]]) -> None:
        sent: list[Sent] = []
        try:
            for row, wanted in rows:
                sent.append(await self._publish_or_drop(row, wanted=wanted))
        except ModelForgeError as error:
            if error.code is ErrorCode.NOT_CONNECTED and self._client.connected:
                self._on_missing_stream()
            raise
        finally:
            # Also what went out before a fault is on the record, so that it is not sent twice for nothing.
            if sent:
                await self._store.write(lambda tx: _record(tx, sent))
                for item, (row, _) in zip(sent, rows, strict=False):
                    self._count(item, row)

    def _count(self, item: Sent, row: Row) -> None:
        ending = ended(row["subject"], bytes(row["payload"])) if item.job_id is None else None
        if ending is not None:
            self._counters.count(*ending)

    async def _publish_or_drop(self, row: Row, *, wanted: bool) -> Sent:
        """A row that no try can publish (a defect, not an outage) is dropped in the end: it must not stop the rest."""
        try:
            return await self._publish(row, wanted=wanted)
        except (ModelForgeError, JsError):
            raise
        except Exception:
            self._defects[row["id"]] += 1
            if self._defects[row["id"]] < DEFECT_TRIES:
                raise
            del self._defects[row["id"]]
            _log.exception("%s cannot be published and was dropped", row["subject"])
            failure = ModelForgeError(ErrorCode.INTERNAL, "the message could not be published")
            return Sent(row_id=row["id"], job_id=row["job_id"], failure=failure)

    async def _publish(self, row: Row, *, wanted: bool) -> Sent:
        stream = subjects.JOBS_STREAM if row["topic"] == "job" else subjects.EVENTS_STREAM
        try:
            async with self._watched(stream):
                return await self._send(row, stream, wanted=wanted)
        except ModelForgeError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            # Readers of events see the gap and ask for a fresh picture; the audit row is in the ledger.
            _log.error("%s is larger than the bus carries and was dropped", row["subject"])
            return Sent(row_id=row["id"], job_id=row["job_id"], failure=error)

    @contextlib.asynccontextmanager
    async def _watched(self, stream: str) -> AsyncIterator[None]:
        """Count publishes that the stream leaves unanswered over a connection that works."""
        try:
            yield
        except ModelForgeError as error:
            if error.code is ErrorCode.REQUEST_TIMEOUT and self._client.connected:
                await self._client.round_trip()
                self._unanswered[stream] += 1
            raise
        self._unanswered.pop(stream, None)

    async def _send(self, row: Row, stream: str, *, wanted: bool) -> Sent:
        row_id, job_id, subject, payload = row["id"], row["job_id"], row["subject"], bytes(row["payload"])
        if stream == subjects.EVENTS_STREAM:
            ack = await self._client.publish_stored(
                subject, payload, dedupe_id=row["dedupe_id"], stream=stream, timeout_s=PUBLISH_TIMEOUT_S
            )
            return Sent(row_id=row_id, stream=stream, sequence=ack.sequence)
        sequence = await (self._publish_job(subject, payload) if wanted else self._leftover(subject))
        return Sent(row_id=row_id, job_id=job_id, stream=stream if sequence else None, sequence=sequence or 0)

    async def _leftover(self, subject: str) -> int | None:
        """The job ended before it was published; an earlier try whose outcome was unknown may have stored it."""
        stored = await last_message(self._client, subjects.JOBS_STREAM, subject)
        return None if stored is None else stored.sequence

    async def _publish_job(self, subject: str, payload: bytes) -> int:
        for _ in range(GUARD_TRIES):
            try:
                ack = await self._client.publish_stored(
                    subject, payload, stream=subjects.JOBS_STREAM, timeout_s=PUBLISH_TIMEOUT_S
                )
            except AlreadyQueued:
                stored = await last_message(self._client, subjects.JOBS_STREAM, subject)
                if stored is not None and stored.data == payload:
                    return stored.sequence
                if stored is not None:
                    _log.error("%s holds a message that is not the ledger's; it is replaced", subject)
                    await delete_message(self._client, subjects.JOBS_STREAM, stored.sequence)
            else:
                return ack.sequence
        raise ModelForgeError(ErrorCode.REQUEST_TIMEOUT, f"{subject} stayed occupied")


def _waiting(tx: Tx) -> list[tuple[Row, bool]]:
    """The oldest rows, each with the word whether its job is still open."""
    found = []
    for row in tx.all("outbox.waiting", limit=BATCH_ROWS):
        job = None if row["job_id"] is None else jobs.find(tx, row["job_id"])
        found.append((row, job is not None and not job.terminal))
    return found


def _record(tx: Tx, sent: list[Sent]) -> None:
    for item in sent:
        tx.run("outbox.remove", id=item.row_id)
        if item.stream is not None:
            tx.run("streams.mark", stream=item.stream, sequence=item.sequence)
            if item.job_id is not None:
                tx.run("jobs.record_sequence", id=item.job_id, sequence=item.sequence)
        job = None if item.failure is None or item.job_id is None else jobs.find(tx, item.job_id)
        if job is not None and item.failure is not None and not job.terminal:
            jobs.give_up(tx, job, item.failure.to_failure())
