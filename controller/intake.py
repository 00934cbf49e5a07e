"""The loop that takes evidence from the stream: pull one, commit, then acknowledge (spec D1, G6).

Exactly one message is in hand at a time. What cannot be understood is audited and ended, so that it never comes
back; what could not be committed is given back. Only an outage of the ledger or the bus pauses the loop: it reads for
all nodes, and what one of them sends must not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from bus import subjects
from bus.client import BusClient
from bus.codec import decode
from bus.errors import AckAction, ErrorCode, ModelForgeError, Retry
from bus.lease_puller import ConsumerGone, Delivered, LeasePuller
from bus.messages.evidence import AnyEvidence, ScanFinished
from controller.blobs import BlobStore, node_place
from controller.evidence import ScanParts, apply, scan_parts
from controller.loops import Faults, Wake
from controller.progress import ProgressBoard
from controller.store.connection import Store
from controller.store.tx import Tx
from observability.counters import Counters, Operation, Outcome
from observability.vitals import Loop

PULL_WAIT_S: Final = 20.0
ACK_TIMEOUT_S: Final = 2.0
GIVE_BACK_S: Final = 1.0
TAKE_GRACE_S: Final = 5.0
RESET_IDLE_S: Final = 60.0
RESET_TIMEOUT_S: Final = 2.0
# A message that no try can handle (a defect) is audited and ended after this many deliveries; after as many, a scan
# whose set the ledger's disk has no room for.
MAX_DELIVERIES: Final = 5
_log: Final = logging.getLogger("controller.intake")


class Intake:
    """See the module. `on_missing_consumer` is told when the stream or its consumer is not there."""

    def __init__(
        self,
        store: Store,
        client: BusClient,
        puller: LeasePuller,
        counters: Counters,
        on_missing_consumer: Callable[[], None],
        faults: Faults,
        blobs: BlobStore,
        progress: ProgressBoard,
    ) -> None:
        self._blobs = blobs
        self._progress = progress
        self._faults = faults
        self._on_missing_consumer = on_missing_consumer
        self._reset_wake = Wake()
        self._store = store
        self._client = client
        self._puller = puller
        self._counters = counters

    async def step(self) -> None:
        """Take one message, if there is one.

        Raises:
            ModelForgeError: NOT_CONNECTED, STORE_UNAVAILABLE; the message was given back or comes again by itself.
        """
        try:
            delivered = await self._puller.pull(PULL_WAIT_S)
        except ConsumerGone as error:
            self._on_missing_consumer()
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, f"cannot pull evidence: {error}") from error
        if delivered is None:
            return
        taking = asyncio.create_task(self.take(delivered), name="evidence-take")
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The end of the process waits for the message in hand: unacknowledged, it would stay away for a while.
            await asyncio.wait({taking}, timeout=TAKE_GRACE_S)
            if taking.done() and not taking.cancelled() and taking.exception() is not None:
                _log.warning("the last evidence was not taken: %s", taking.exception())
            raise

    def request_reset(self) -> None:
        """A connection or process ended in between: what was delivered to it and not acknowledged is to come again."""
        self._reset_wake.set()

    async def reset_step(self) -> None:
        """Wait for a request, then let the server deliver again whatever is not acknowledged.

        Else evidence that was in the hands of a killed controller would stay away for the consumer's whole
        `ack_wait`, longer than a lease: a probe that has ended well would run once more. There is one reader, and
        what it has in hand meanwhile comes again as a duplicate.

        Raises:
            ModelForgeError: NOT_CONNECTED, REQUEST_TIMEOUT.
        """
        if not await self._reset_wake.wait(RESET_IDLE_S):
            return
        consumer = f"{subjects.EVIDENCE_STREAM}.{subjects.EVIDENCE_CONSUMER}"
        try:
            # Asked first: the server does not answer a reset of a consumer that is not there.
            await self._client.js(f"CONSUMER.INFO.{consumer}", timeout_s=RESET_TIMEOUT_S)
            await self._client.js(f"CONSUMER.RESET.{consumer}", timeout_s=RESET_TIMEOUT_S)
        except ModelForgeError as error:
            if error.info.retry is Retry.LATER:
                self._reset_wake.set()
                raise
            # The consumer is being made again and begins anew by itself, or the server is too old to know this.
            _log.info("unacknowledged evidence comes again by itself only: %s", error)

    async def take(self, delivered: Delivered) -> None:
        """Handle one delivery to its acknowledgement, its end or its return; raises as `step` does, for outages only.

        What becomes of a message that ended in an error is its code's `ack` in the table of errors. A code without a
        word about messages is a defect here: given back a few times, then ended, so that it never comes for ever.
        """
        try:
            applied = await self._apply(delivered)
        except ModelForgeError as error:
            action = error.info.ack
            if action in {AckAction.ACK, AckAction.TERM}:
                await self._end(delivered, error, action)
                return
            if error.info.retry is Retry.LATER:
                await self._give_back(delivered)
                raise
            await self._again_or_never(delivered, error, error)
            return
        except (ValueError, ArithmeticError) as error:
            # A number or a text that no column and no clock can hold: another try would end in the same way.
            self._faults.record(Loop.EVIDENCE, error)
            bad = ModelForgeError(ErrorCode.MALFORMED_MESSAGE, "the evidence holds a value that cannot be stored")
            await self._end(delivered, bad, AckAction.TERM)
            return
        except Exception as error:  # noqa: BLE001 -- told, counted and tried again: it must not stop the others
            defect = ModelForgeError(ErrorCode.INTERNAL, "the evidence could not be handled")
            await self._again_or_never(delivered, error, defect)
            return
        self._counters.count(Operation.EVIDENCE, applied)
        await self._answer(delivered, b"+ACK")

    async def _again_or_never(self, delivered: Delivered, error: Exception, reason: ModelForgeError) -> None:
        """A defect: told and counted, tried a few times, then ended. The loop goes on to the next message at once."""
        self._faults.record(Loop.EVIDENCE, error)
        if delivered.num_delivered < MAX_DELIVERIES:
            await self._give_back(delivered)
            return
        _log.error("evidence on %s cannot be handled and is ended", delivered.subject)
        await self._end(delivered, reason, AckAction.TERM)

    async def _apply(self, delivered: Delivered) -> Outcome:
        node = subjects.parse_node(delivered.subject)
        message: AnyEvidence = decode(delivered.data, AnyEvidence)
        parts = await self._parts(node, message) if isinstance(message, ScanFinished) else None
        sequence = delivered.stream_sequence
        try:
            applied = await self._store.write(lambda tx: _marked(tx, message, node, sequence, parts))
        except ModelForgeError as error:
            if not _may_end_without_set(message, delivered, error):
                raise
            # A set of many megabytes may find no room where a few words do. They end the scan, and say why; if the disk
            # refuses them too, nobody can end anything, and the message is given back as before.
            refused = ScanParts(error)
            applied = await self._store.write(lambda tx: _marked(tx, message, node, sequence, refused))
        if isinstance(message, ScanFinished) and applied is not Outcome.REFUSED:
            self._progress.drop(message.job_id)
            await self._blobs.forget(node_place(node, message.lease_id))
        return applied

    async def _parts(self, node: str, message: ScanFinished) -> ScanParts | None:
        """What a scan found, read and decoded before the transaction; a payload that is gone or broken is its failure.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE when the machine is short of something for the moment.
        """
        if message.outcome != "succeeded" or (message.manifest_blob is None and message.evidence_blob is None):
            return None
        place = node_place(node, message.lease_id)
        try:
            manifest, evidence = [
                None if blob is None else await self._blobs.read(place, blob)
                for blob in (message.manifest_blob, message.evidence_blob)
            ]
        except ModelForgeError as error:
            if error.info.retry is Retry.LATER:
                raise
            return ScanParts(error)
        return await asyncio.to_thread(scan_parts, message, manifest, evidence)

    async def _end(self, delivered: Delivered, error: ModelForgeError, action: AckAction) -> None:
        """Audit what cannot be read or handled, then end it: it would come back for ever."""
        await self._store.write(lambda tx: _unreadable(tx, delivered, error))
        self._counters.count(Operation.EVIDENCE, Outcome.REFUSED)
        await self._answer(delivered, b"+ACK" if action is AckAction.ACK else f"+TERM {error.code}".encode())

    async def _give_back(self, delivered: Delivered) -> None:
        self._counters.count(Operation.EVIDENCE, Outcome.RETRIED)
        delay_ns = int(GIVE_BACK_S * 1_000_000_000)
        await self._answer(delivered, f'-NAK {{"delay": {delay_ns}}}'.encode())

    async def _answer(self, delivered: Delivered, verb: bytes) -> None:
        """Tell the stream. When that fails the message comes again and is a duplicate: no harm is done."""
        try:
            await self._client.request(delivered.reply, verb, timeout_s=ACK_TIMEOUT_S)
        except ModelForgeError as error:
            _log.warning("evidence on %s was not answered (%s): it will come again", delivered.subject, error.code)


def _may_end_without_set(message: AnyEvidence, delivered: Delivered, error: ModelForgeError) -> bool:
    """Did the ledger refuse what a scan found often enough? Its node waits for no answer and would scan it all again."""
    found = isinstance(message, ScanFinished) and message.outcome == "succeeded"
    return found and error.code is ErrorCode.STORE_UNAVAILABLE and delivered.num_delivered >= MAX_DELIVERIES


def _marked(tx: Tx, message: AnyEvidence, node: str, stream_sequence: int, parts: ScanParts | None) -> Outcome:
    tx.run("streams.mark", stream=subjects.EVIDENCE_STREAM, sequence=stream_sequence)
    return apply(tx, message, node, parts)


def _unreadable(tx: Tx, delivered: Delivered, error: ModelForgeError) -> None:
    tx.run("streams.mark", stream=subjects.EVIDENCE_STREAM, sequence=delivered.stream_sequence)
    node = delivered.subject.rsplit(".", 1)[-1]
    detail = {"code": error.code, "reason": error.message, "size_bytes": str(len(delivered.data))}
    tx.audit_refusal("evidence", node, "unreadable", node, detail=detail)
