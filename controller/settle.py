"""The final acknowledgement: a job's message leaves the stream after its end was committed, and by the controller.

A job that ended keeps its stream sequence until its message is known to be gone, so a crash between commit and
acknowledgement forgets nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from bus import subjects
from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError
from bus.streams import delete_message, last_message
from controller import jobs
from controller.lease_rules import JobSnapshot, LeaseSnapshot, check_delivery
from controller.loops import Wake
from controller.store.connection import Store
from controller.store.tx import Tx

BATCH_JOBS: Final = 64
ACK_TIMEOUT_S: Final = 2.0
_Unsettled = tuple[JobSnapshot, LeaseSnapshot | None]
_Page = tuple[str, str]  # end and id of the last job of the page before
_FIRST_PAGE: Final[_Page] = ("", "")
_log: Final = logging.getLogger("controller.settle")


class Settler:
    """Takes the messages of ended jobs out of the stream."""

    def __init__(self, store: Store, client: BusClient, interval_s: float) -> None:
        self._store = store
        self._client = client
        self._interval_s = interval_s
        self._wake = Wake()

    def wake(self) -> None:
        """A job may have ended."""
        self._wake.set()

    async def step(self) -> None:
        """Settle every ended job, then wait for the next one. One that cannot be settled holds up no other.

        Raises:
            ModelForgeError: NOT_CONNECTED, REQUEST_TIMEOUT or STORE_UNAVAILABLE; the list is kept in the ledger.
            Exception: whatever kept one job from being settled, after all were tried.
        """
        faults: list[Exception] = []
        page: _Page | None = _FIRST_PAGE
        while page is not None:
            found, page = await self._store.read(partial(_unsettled, page=page))
            for job, lease in found:
                try:
                    await self.settle(job, lease.delivery if lease is not None else None)
                except Exception as error:
                    if is_cut_off(error):
                        raise  # without a connection none can be settled
                    _log.warning("the message of %s was not taken out of the stream: %s", job.id, error)
                    faults.append(error)
        if faults:
            raise faults[0]
        await self._wake.wait(self._interval_s)

    async def settle(self, job: JobSnapshot, delivery: str | None) -> None:
        """Take the message of one ended job out of the stream and put that on the record.

        An acknowledgement frees the consumer's slot at once, but it names a stream sequence and nothing else: one
        from an older message could delete another job. So it is sent only to a delivery of the node's own lane that
        is of the very message which lies there now; whatever still lies there afterwards is deleted.
        """
        for try_delivery in (delivery, None):
            stored = await last_message(self._client, subjects.JOBS_STREAM, job.subject)
            if stored is None:
                break
            if try_delivery is not None and self._is_of(try_delivery, job, stored.sequence):
                await self._acknowledge(try_delivery)
            elif try_delivery is None:
                await delete_message(self._client, subjects.JOBS_STREAM, stored.sequence)
        await self._store.write(lambda tx: tx.run("jobs.settle", id=job.id))

    def _is_of(self, delivery: str, job: JobSnapshot, sequence: int) -> bool:
        try:
            return check_delivery(delivery, job.node, job.lane).stream_sequence == sequence
        except ModelForgeError as error:
            _log.warning("the delivery of %s was not acknowledged: %s", job.id, error)
            return False

    async def _acknowledge(self, delivery: str) -> None:
        try:
            await self._client.request(delivery, b"+ACK", timeout_s=ACK_TIMEOUT_S)
        except Exception as error:
            # No answer: the consumer is gone. Or the delivery, which is a node's word, is of no use in a way that
            # nobody foresaw. The second look at the subject decides: what still lies there is deleted.
            if is_cut_off(error):
                raise
            _log.warning("a final acknowledgement failed, the message is deleted instead: %s", error)


def is_cut_off(error: Exception) -> bool:
    """Is there no connection, so that going on with the next job is of no use?"""
    return isinstance(error, ModelForgeError) and error.code in {ErrorCode.NOT_CONNECTED, ErrorCode.AUTH_FAILED}


def _unsettled(tx: Tx, page: _Page) -> tuple[list[_Unsettled], _Page | None]:
    """A batch of ended jobs, oldest first, and where the next one begins: jobs that stay unsettled hide none."""
    after_at, after_id = page
    rows = tx.all("jobs.unsettled", after_at=after_at, after_id=after_id, limit=BATCH_JOBS)
    found = [(job, jobs.newest_lease(tx, job.id)) for job in map(jobs.job_of, rows)]
    return found, (rows[-1]["finished_at"], rows[-1]["id"]) if len(rows) == BATCH_JOBS else None
