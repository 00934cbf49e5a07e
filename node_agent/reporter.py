"""Evidence on its way out: cumulative, in order, and said again until the stream has it (spec P6).

Phases are sent in the background, so that a bus in trouble does not change what is measured; each carries the whole
timeline, so that a later one makes an unsent one superfluous. The last message is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from bus import subjects
from bus.client import BusClient
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import now
from bus.messages.evidence import Evidence, PhaseMark, ProbeFinished, ProbePhase
from bus.states import ProbeState
from node_agent.claims import Lease
from node_agent.controller_api import Boot
from node_agent.waiting import Backoff, end_tasks, happened, monotonic_deadline

# The stream refuses more than 512 KiB; the rest is for headers.
MAX_EVIDENCE_BYTES: Final = 508 * 1024
PUBLISH_TIMEOUT_S: Final = 5.0
# What was found is worth telling even when the job's own time is just over.
REPORT_GRACE_S: Final = 60.0
# The number of dropped bytes grows by some digits when more is dropped.
_COUNTER_ROOM_BYTES: Final = 32
_log = logging.getLogger(__name__)


class Reporter:
    """Reports one attempt; an async context manager, whose end stops the background sender."""

    def __init__(self, client: BusClient, lease: Lease, boot: Boot) -> None:
        self.timeline: tuple[PhaseMark, ...] = ()
        self._client = client
        self._lease = lease
        self._boot = boot
        self._sequence = 0
        self._unsent: ProbePhase | None = None
        self._wake = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_phases())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_sender()

    def head(self) -> dict[str, Any]:
        """The common fields of the next message; takes the next sequence number."""
        self._sequence += 1
        return {
            "node": self._boot.node,
            "boot_id": self._boot.id,
            "job_id": self._lease.job_id,
            "lease_id": self._lease.id,
            "attempt": self._lease.attempt,
            "sequence": self._sequence,
            "at": now(),
        }

    def phase(self, state: ProbeState) -> None:
        """The attempt entered `state`; a second mark of the same state is nothing."""
        if self.timeline and self.timeline[-1].state is state:
            return
        self.timeline = (*self.timeline, PhaseMark(state=state, at=now(), attempt=self._lease.attempt))
        self._unsent = ProbePhase(**self.head(), timeline=self.timeline)
        self._wake.set()

    async def finish(self, message: Evidence, *, until_s: float) -> bool:
        """Publish the last message; was it stored? Tries until the lease is over or the loop's clock says `until_s`."""
        await self._stop_sender()
        stored = await self._store(message, until_s, lambda: False)
        if not stored:
            _log.warning("the end of job %s could not be reported; its lease runs out", self._lease.job_id)
        return stored

    async def _stop_sender(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await end_tasks(sender)
            if sender.done() and not sender.cancelled() and (error := sender.exception()) is not None:
                _log.error("the phases of lease %s were not all reported", self._lease.id, exc_info=error)

    async def _send_phases(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            message, self._unsent = self._unsent, None
            if message is not None:
                until_s = asyncio.get_running_loop().time() + self._lease.remaining_s
                await self._store(message, until_s, lambda: self._unsent is not None)

    async def _store(self, message: Evidence, until_s: float, superfluous: Callable[[], bool]) -> bool:
        """Publish under one dedupe id until the stream says that it has the message: a lost answer is no second one."""
        data = encode(message)
        dedupe_id = f"{self._lease.id}/{message.sequence}"
        backoff = Backoff(0.1, 2.0)
        while not self._lease.ended.is_set() and not superfluous():
            try:
                await self._client.publish_stored(
                    subjects.evidence(self._boot.node),
                    data,
                    dedupe_id=dedupe_id,
                    stream=subjects.EVIDENCE_STREAM,
                    timeout_s=PUBLISH_TIMEOUT_S,
                )
            except ModelForgeError as error:
                if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                _log.warning("evidence %s was not stored: %s", dedupe_id, error)
            else:
                return True
            if asyncio.get_running_loop().time() >= until_s or await happened(self._lease.ended, backoff.next_s()):
                break
        return False


def report_until_s(deadline_at: datetime) -> float:
    """How long the end of a job with this deadline is worth reporting, on the loop's clock."""
    return max(monotonic_deadline(deadline_at), asyncio.get_running_loop().time() + REPORT_GRACE_S)


def fitted(message: ProbeFinished, limit_bytes: int = MAX_EVIDENCE_BYTES) -> ProbeFinished:
    """`message`, its log cut at the beginning until the whole fits; the cut bytes are counted in it.

    Raises:
        ModelForgeError: MESSAGE_TOO_LARGE when it does not fit even without a log.
    """
    while (excess := len(encode(message)) - limit_bytes) > 0:
        log = message.log_text.encode()
        if not log:
            raise ModelForgeError(
                ErrorCode.MESSAGE_TOO_LARGE, f"the evidence is {excess} bytes larger than the bus carries"
            )
        # JSON makes one byte of text into one to six bytes of message: cut in proportion, and look again.
        encoded_bytes = len(encode(message.log_text))
        keep_bytes = len(log) * max(0, encoded_bytes - excess - _COUNTER_ROOM_BYTES) // encoded_bytes
        kept = log[len(log) - min(keep_bytes, len(log) - 1) :].decode(errors="ignore")
        dropped = message.log_dropped_bytes + len(log) - len(kept.encode())
        message = msgspec.structs.replace(message, log_text=kept, log_dropped_bytes=dropped)
    return message
