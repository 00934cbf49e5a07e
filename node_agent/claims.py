"""Leases as a node holds them: claimed, renewed, and over after one TTL without a renewal (spec P4).

The fence is the controller's row. The delivery is kept alive beside it, because a redelivery would cost a claim, but
whether that works decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bus import verbs
from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError
from bus.lease_puller import Delivered
from bus.messages.api import (
    AnyClaim,
    ClaimAlreadyYours,
    ClaimGranted,
    ClaimRefused,
    ClaimRequest,
    ClaimRetryAfter,
    ClaimTerminal,
    Fenced,
    RenewRequest,
)
from bus.messages.inventory import ActiveJob
from node_agent.controller_api import ControllerApi
from node_agent.waiting import Backoff, happened, is_transient

RENEWALS_PER_TTL: Final = 3
MAX_REQUEST_S: Final = 5.0
_REFUSED_DELAY_S: Final = 30.0
_NS_PER_S: Final = 1_000_000_000
_log = logging.getLogger(__name__)


class Lease:
    """One attempt's right to work.

    Attributes:
        id: the lease's id.
        job_id: the job it is for.
        attempt: which attempt this is, as the controller counts them.
        delivery: acknowledgement subject of the newest delivery of the job's message.
        cancelled: set when an operator asked for the end of the job; never cleared.
        ended: set when the lease is over; `end` says why. Nothing may be reported under it any more.
        older: an attempt of this same process at the same job, whose work may not have ended yet.
        done: set by whoever works under the lease when all of its work has ended.
    """

    def __init__(self, granted: ClaimGranted, job_id: str, delivery: str, asked_at_s: float) -> None:
        self.id = granted.lease_id
        self.job_id = job_id
        self.attempt = granted.attempt
        self.delivery = delivery
        self.cancelled = asyncio.Event()
        self.ended = asyncio.Event()
        self.done = asyncio.Event()
        self.end: ModelForgeError | None = None
        self.older: Lease | None = None
        self._token = granted.token
        self._loop = asyncio.get_running_loop()
        self.extend(asked_at_s, granted.ttl_s, cancel_requested=granted.cancel_requested)

    def extend(self, asked_at_s: float, ttl_s: float, *, cancel_requested: bool) -> None:
        """The controller answered: one TTL, counted from when it was asked, never from when it answered."""
        self.ttl_s = ttl_s
        self._over_at_s = asked_at_s + ttl_s
        if cancel_requested:
            self.cancelled.set()

    @property
    def remaining_s(self) -> float:
        """How long the lease runs without another renewal, by the monotonic clock."""
        return self._over_at_s - self._loop.time()

    def finish(self, why: ModelForgeError) -> None:
        """The lease is over; the first reason stands."""
        if self.end is None:
            self.end = why
            self.ended.set()

    def credentials(self, boot_id: str) -> dict[str, str]:
        """The fields by which a request shows that it comes from the holder of this lease."""
        return {"boot_id": boot_id, "lease_id": self.id, "token": self._token}

    def request(self, boot_id: str) -> RenewRequest:
        """What a renewal says."""
        return RenewRequest(**self.credentials(boot_id))

    def active_job(self) -> ActiveJob:
        """The inventory's line about it."""
        return ActiveJob(job_id=self.job_id, lease_id=self.id, attempt=self.attempt)


class Claims:
    """Claims deliveries and keeps the leases that were granted; `active` is keyed by job id."""

    def __init__(self, client: BusClient, api: ControllerApi) -> None:
        self.active: dict[str, Lease] = {}
        self._client = client
        self._api = api
        self._boot_id = api.boot.id
        self._loop = asyncio.get_running_loop()

    async def claim(self, delivered: Delivered, job_id: str, *, ack_wait_s: float) -> Lease | None:
        """Ask for the lease of a delivery; `None` when there is nothing to do here.

        An older lease of the same job ends in the same moment; wait for its `done` before the work begins again.

        Raises:
            ModelForgeError: BOOT_SUPERSEDED; the last error when the controller could not be asked in time.
        """
        request = ClaimRequest(
            boot_id=self._boot_id, job_id=job_id, delivery=delivered.reply, num_delivered=delivered.num_delivered
        )
        # An answer that comes after the delivery was given to somebody else is worth nothing: half its time.
        patience_s = ack_wait_s / 2
        reply, asked_at_s = await self._ask(request, patience_s)
        match reply:
            case ClaimGranted():
                return self._granted(reply, delivered, job_id, asked_at_s)
            case ClaimAlreadyYours():
                await self._again(delivered, job_id, reply, ack_wait_s)
            case ClaimTerminal():
                _log.info("job %s has ended already (%s)", job_id, reply.state)
            case ClaimRetryAfter():
                await self.give_back(delivered.reply, reply.delay_s)
            case ClaimRefused():
                await self._refused(delivered, job_id, reply)
        return None

    async def give_back(self, delivery: str, delay_s: float) -> None:
        """Ask the stream to deliver the message again after `delay_s`; when that is lost, `ack_wait` does it."""
        nak = f'-NAK {{"delay": {int(delay_s * _NS_PER_S)}}}'
        try:
            await self._client.publish(delivery, nak.encode())
        except ModelForgeError as error:
            _log.warning("a delivery could not be given back: %s", error)

    async def keep(self, lease: Lease) -> None:
        """Renew `lease` until it is over; run it as a task and cancel it when the work is done."""
        try:
            await self._keep(lease)
        except Exception as error:  # noqa: BLE001 -- logged whole; work without a living keeper would never be fenced
            _log.exception("a defect of the agent ended the renewals of lease %s", lease.id)
            message = f"the renewals ended with {type(error).__name__}"
            lease.finish(ModelForgeError(ErrorCode.NODE_FAULT, message))

    async def _keep(self, lease: Lease) -> None:
        backoff = Backoff(lease.ttl_s / 30, lease.ttl_s / 6)
        pause_s = lease.ttl_s / RENEWALS_PER_TTL
        while not await happened(lease.ended, min(pause_s, lease.remaining_s)):
            if lease.remaining_s <= 0:
                message = "the lease could not be renewed for one whole TTL"
                lease.finish(ModelForgeError(ErrorCode.LEASE_FENCED, message))
            elif await self._renew(lease):
                backoff.reset()
                pause_s = lease.ttl_s / RENEWALS_PER_TTL
            else:
                pause_s = backoff.next_s()

    async def _ask(self, request: ClaimRequest, patience_s: float) -> tuple[AnyClaim, float]:
        backoff = Backoff(0.1, 2.0)
        until_s = self._loop.time() + patience_s
        while True:
            asked_at_s = self._loop.time()
            try:
                reply = await self._api.call(verbs.CLAIM, request, timeout_s=min(MAX_REQUEST_S, patience_s))
            except ModelForgeError as error:
                pause_s = backoff.next_s()
                if not is_transient(error) or self._loop.time() + pause_s >= until_s:
                    raise
                await asyncio.sleep(pause_s)
            else:
                return reply, asked_at_s

    def _granted(self, reply: ClaimGranted, delivered: Delivered, job_id: str, asked_at_s: float) -> Lease:
        lease = Lease(reply, job_id, delivered.reply, asked_at_s)
        older = self.active.get(job_id)
        if older is not None:
            older.finish(ModelForgeError(ErrorCode.LEASE_FENCED, f"attempt {lease.attempt} took its place"))
            lease.older = older
        self.active[job_id] = lease
        return lease

    def drop(self, lease: Lease) -> None:
        """All work under `lease` has ended."""
        lease.done.set()
        if self.active.get(lease.job_id) is lease:
            del self.active[lease.job_id]

    async def _again(self, delivered: Delivered, job_id: str, reply: ClaimAlreadyYours, ack_wait_s: float) -> None:
        held = self.active.get(job_id)
        if held is not None and held.id == reply.lease_id:
            # The old delivery is dead to the stream: from now on this one is kept alive and, in the end, acknowledged.
            held.delivery = delivered.reply
            return
        # The grant was lost on its way, so nobody knows the token: the lease runs out, then a new attempt is claimed.
        await self.give_back(delivered.reply, ack_wait_s / 2)

    async def _refused(self, delivered: Delivered, job_id: str, reply: ClaimRefused) -> None:
        error = ModelForgeError.from_failure(reply.failure)
        if error.code is ErrorCode.BOOT_SUPERSEDED:
            raise error
        _log.warning("the claim of job %s was refused: %s", job_id, error)
        await self.give_back(delivered.reply, _REFUSED_DELAY_S)

    async def _renew(self, lease: Lease) -> bool:
        timeout_s = min(MAX_REQUEST_S, lease.ttl_s / RENEWALS_PER_TTL, lease.remaining_s)
        asked_at_s = self._loop.time()
        try:
            reply, _ = await asyncio.gather(
                self._api.call(verbs.RENEW, lease.request(self._boot_id), timeout_s=timeout_s),
                self._keep_delivery(lease.delivery, timeout_s),
            )
        except ModelForgeError as error:
            if not is_transient(error):
                lease.finish(error)
            _log.warning("lease %s was not renewed: %s", lease.id, error)
            return False
        if isinstance(reply, Fenced):
            lease.finish(ModelForgeError.from_failure(reply.failure))
            return False
        lease.extend(asked_at_s, reply.ttl_s, cancel_requested=reply.cancel_requested)
        return True

    async def _keep_delivery(self, delivery: str, timeout_s: float) -> None:
        try:
            await self._client.request(delivery, b"+WPI", timeout_s=timeout_s)
        except ModelForgeError as error:
            # The stream may be gone while the controller is not; the lease decides, not the delivery.
            _log.info("a delivery could not be kept alive: %s", error)
