"""A controller that does what a test tells it, for tests of the agent alone: no ledger, no rules of its own.

It answers the node's verbs over a real nats-server, puts jobs into the real stream, and collects the evidence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from nats.aio.msg import Msg

from bus import ids, subjects, verbs
from bus.client import BusClient
from bus.codec import decode, encode
from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.lease_puller import LeasePuller
from bus.messages.api import (
    ClaimAlreadyYours,
    ClaimGranted,
    ClaimRequest,
    ClaimTerminal,
    Failed,
    Fenced,
    HelloReply,
    HelloRequest,
    Ok,
    Refused,
    RefuseRequest,
    Renewed,
    RenewRequest,
)
from bus.messages.base import Message
from bus.messages.blobs import (
    MAX_CHUNK_BYTES,
    BlobChunk,
    BlobState,
    NodeBlobGet,
    NodeBlobPut,
    Noted,
    ProgressReport,
)
from bus.messages.evidence import AnyEvidence, Evidence, ProbeFinished, ScanFinished
from bus.messages.jobs import AnyJob
from bus.streams import ensure_node_consumers, ensure_streams
from bus.subjects import Lane

Handler = Callable[[Any], Awaitable[Any]]
DEADLINE_S = 20.0


@dataclass
class Held:
    """A lease as the script remembers it."""

    boot_id: str
    grant: ClaimGranted
    delivery: str


@dataclass
class ScriptedController:
    """Grants everything, unless `answers` holds another handler for a verb's name.

    Attributes:
        answers: verb name -> handler; it may raise ModelForgeError, or never return to be silent.
        hellos, claims, renewals, refusals, progress: what was asked.
        blobs: what was sent in chunks, by its SHA-256; `manifests`: what can be fetched, by its set's digest.
        chunk_bytes: how much of a manifest one answer holds.
        evidence: what arrived, in order.
        cancel: ids of jobs whose cancellation the renewals are to ask for.
    """

    client: BusClient
    node: str
    ttl_s: float = 2.0
    inventory_interval_s: float = 0.5
    answers: dict[str, Handler] = field(default_factory=dict)
    hellos: list[HelloRequest] = field(default_factory=list)
    claims: list[ClaimRequest] = field(default_factory=list)
    renewals: list[RenewRequest] = field(default_factory=list)
    refusals: list[RefuseRequest] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    progress: list[ProgressReport] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    chunk_bytes: int = MAX_CHUNK_BYTES
    cancel: set[str] = field(default_factory=set)
    leases: dict[str, Held] = field(default_factory=dict)
    terminal: set[str] = field(default_factory=set)
    deliveries: list[tuple[str, str]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, *, slots: int = 2) -> None:
        await ensure_streams(self.client, {})
        await ensure_node_consumers(self.client, self.node, ack_wait_s=self.ttl_s, slots=slots)
        for verb in verbs.NODE_VERBS:
            await self.client.subscribe(subjects.endpoint("node", verb.name), self._answer(verb))
        self._spawn(self._collect())

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def put(self, job: AnyJob) -> None:
        """Queue a job."""
        await self.put_raw(job.job_id, encode(job))

    async def put_raw(self, job_id: str, data: bytes) -> None:
        subject = subjects.job(self.node, Lane.WORK, job_id)
        await self.client.publish_stored(subject, data, stream=subjects.JOBS_STREAM)

    async def command(self, command: Message) -> None:
        await self.client.publish(subjects.command(self.node), encode(command))

    async def until(self, condition: Callable[[], bool], within_s: float = DEADLINE_S) -> None:
        """Wait for something that a message of the agent makes true."""
        async with asyncio.timeout(within_s), self.changed:
            await self.changed.wait_for(condition)

    async def finished(self, job_id: str) -> ProbeFinished | ScanFinished:
        """The last evidence of a job."""

        def found() -> list[ProbeFinished | ScanFinished]:
            return [
                message
                for message in self.evidence
                if isinstance(message, ProbeFinished | ScanFinished) and message.job_id == job_id
            ]

        await self.until(lambda: bool(found()))
        return found()[0]

    def states(self, job_id: str) -> list[str]:
        """The phases that the newest evidence of a job tells of."""
        timelines = [
            [mark.state.value for mark in getattr(message, "timeline", ())]
            for message in self.evidence
            if message.job_id == job_id
        ]
        return timelines[-1] if timelines else []

    def _answer(self, verb: verbs.Verb[Any, Any]) -> Callable[[Msg], Awaitable[None]]:
        async def answer(message: Msg) -> None:
            self._spawn(self._handle(verb, message))

        return answer

    async def _handle(self, verb: verbs.Verb[Any, Any], message: Msg) -> None:
        request = decode(message.data, verb.request)
        handler = self.answers.get(verb.name, getattr(self, f"on_{verb.name.replace('.', '_')}"))
        try:
            reply: Any = Ok(data=msgspec.Raw(encode(await handler(request))))
        except ModelForgeError as error:
            reply = Failed(failure=error.to_failure())
        await self.client.publish(message.reply, encode(reply))
        await self._note()

    async def on_hello(self, request: HelloRequest) -> HelloReply:
        self.hellos.append(request)
        return HelloReply(lease_ttl_s=self.ttl_s, inventory_interval_s=self.inventory_interval_s)

    async def on_claim(self, request: ClaimRequest) -> Any:
        self.claims.append(request)
        if request.job_id in self.terminal:
            await self.client.publish(request.delivery, b"+ACK")
            return ClaimTerminal(state="succeeded")
        held = self.leases.get(request.job_id)
        if held is not None and held.boot_id == request.boot_id:
            held.delivery = request.delivery
            return ClaimAlreadyYours(lease_id=held.grant.lease_id, attempt=held.grant.attempt)
        attempt = 1 if held is None else held.grant.attempt + 1
        grant = ClaimGranted(
            lease_id=ids.new_id(ids.LEASE),
            attempt=attempt,
            token=ids.new_token(),
            ttl_s=self.ttl_s,
            cancel_requested=request.job_id in self.cancel,
        )
        self.leases[request.job_id] = Held(request.boot_id, grant, request.delivery)
        return grant

    async def on_renew(self, request: RenewRequest) -> Any:
        self.renewals.append(request)
        job_id, held = next(item for item in self.leases.items() if item[1].grant.lease_id == request.lease_id)
        if held.grant.token != request.token:
            raise ModelForgeError(ErrorCode.PERMISSION_DENIED, "another token")
        if job_id in self.terminal:
            return Fenced(failure=ModelForgeError(ErrorCode.LEASE_FENCED, "the lease is over").to_failure())
        return Renewed(ttl_s=self.ttl_s, cancel_requested=job_id in self.cancel)

    async def on_refuse(self, request: RefuseRequest) -> Refused:
        self.refusals.append(request)
        await self.client.publish(request.delivery, b"+ACK")
        return Refused(state="failed")

    async def on_progress(self, request: ProgressReport) -> Noted:
        self._holder(request.lease_id, request.token)
        self.progress.append(request)
        return Noted()

    async def on_blob_put(self, request: NodeBlobPut) -> BlobState:
        self._holder(request.lease_id, request.token)
        have = self.blobs.get(request.blob.sha256, b"")
        if request.data and request.offset == len(have):
            have += request.data
            self.blobs[request.blob.sha256] = have
        complete = len(have) == request.blob.size_bytes and sha256_hex(have) == request.blob.sha256
        return BlobState(received_bytes=len(have), complete=complete)

    async def on_blob_get(self, request: NodeBlobGet) -> BlobChunk:
        self._holder(request.lease_id, request.token)
        data = self.manifests[request.digest]
        chunk = data[request.offset : request.offset + self.chunk_bytes]
        return BlobChunk(data=chunk, total_bytes=len(data))

    def _holder(self, lease_id: str, token: str) -> None:
        held = next((held for held in self.leases.values() if held.grant.lease_id == lease_id), None)
        if held is None or held.grant.token != token:
            raise ModelForgeError(ErrorCode.PERMISSION_DENIED, "another token")

    async def _collect(self) -> None:
        puller = LeasePuller(self.client, subjects.EVIDENCE_STREAM, subjects.EVIDENCE_CONSUMER)
        await puller.start()
        try:
            while True:
                delivered = await puller.pull(30.0)
                if delivered is not None:
                    await self._take(decode(delivered.data, AnyEvidence), delivered.reply)
        finally:
            await puller.stop()

    async def _take(self, message: Evidence, delivery: str) -> None:
        await self.client.publish(delivery, b"+ACK")
        self.evidence.append(message)
        held = self.leases.get(message.job_id)
        ended = isinstance(message, ProbeFinished | ScanFinished)
        if ended and held is not None and held.grant.lease_id == message.lease_id:
            self.terminal.add(message.job_id)
            await self.client.publish(held.delivery, b"+ACK")
        await self._note()

    async def _note(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
