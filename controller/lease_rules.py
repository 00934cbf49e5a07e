"""Who may work on a job, decided purely: snapshots in, a decision out (spec P4).

JetStream does not fence: it acknowledges by stream sequence alone, so a dead attempt could delete the job that a
newer one holds, and its delivery count is only a hint. The fence is the lease row; these functions read it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bus import states, subjects
from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.states import JobState, LeaseState

# Waiting for somebody's lease is asked again a little after its end, never in a hot loop.
MIN_RETRY_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job's row, as far as leases look at it."""

    id: str
    type: str
    node: str
    lane: subjects.Lane
    state: JobState
    attempt_count: int
    max_attempts: int
    cancel_requested: bool
    deadline_at: datetime
    stream_sequence: int | None = None

    @property
    def terminal(self) -> bool:
        """Has the job ended?"""
        return states.JOB.is_terminal(self.state)

    @property
    def subject(self) -> str:
        """Where the job's message lies in the stream."""
        return subjects.job(self.node, self.lane, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSnapshot:
    """A lease's row."""

    id: str
    job_id: str
    node: str
    boot_id: str
    attempt: int
    token_sha256: str
    state: LeaseState
    delivery: str
    last_sequence: int
    expires_at: datetime

    def holds(self, at: datetime) -> bool:
        """Is the lease active and not yet over at this moment?"""
        return self.state is LeaseState.ACTIVE and self.expires_at > at


@dataclass(frozen=True, slots=True)
class Grant:
    """A new attempt; `expire` names the active lease whose time is over and which ends in the same moment."""

    attempt: int
    expire: str | None


@dataclass(frozen=True, slots=True)
class AlreadyYours:
    """This boot holds the lease: the new delivery takes the place of the old one."""

    lease_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has ended; its delivery is to be acknowledged."""

    state: JobState


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job ends now: no attempt or no time is left."""

    code: ErrorCode
    expire: str | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Another boot's lease still runs."""

    delay_s: float


ClaimDecision = Grant | AlreadyYours | Ended | GiveUp | Wait


def token_hash(token: str) -> str:
    """What is stored of a token (spec P4)."""
    return sha256_hex(token.encode())


def check_delivery(delivery: str, node: str, lane: subjects.Lane) -> subjects.Delivery:
    """The parts of a delivery that a node names, if it is one of its own lane's consumer.

    The controller will publish there with its own rights: an unchecked subject would make it a confused deputy.

    Raises:
        ModelForgeError: PERMISSION_DENIED when it belongs to another stream or consumer, MALFORMED_MESSAGE when it
            is no delivery at all.
    """
    parts = subjects.parse_delivery(delivery)
    if parts.stream != subjects.JOBS_STREAM or parts.consumer != subjects.lane_consumer(node, lane):
        message = "the delivery is not one of this node's own lane"
        raise ModelForgeError(ErrorCode.PERMISSION_DENIED, message, stream=parts.stream, consumer=parts.consumer)
    return parts


def decide_claim(job: JobSnapshot, lease: LeaseSnapshot | None, boot_id: str, at: datetime) -> ClaimDecision:
    """What a claim by the job's own node leads to; `lease` is the newest lease of the job (spec P4)."""
    if job.terminal:
        return Ended(job.state)
    active = lease if lease is not None and lease.state is LeaseState.ACTIVE else None
    if active is not None and active.holds(at):
        if active.boot_id == boot_id:
            return AlreadyYours(active.id, active.attempt)
        return Wait(max(MIN_RETRY_S, (active.expires_at - at).total_seconds()))
    expire = active.id if active is not None else None
    if job.deadline_at <= at:
        return GiveUp(ErrorCode.DEADLINE_EXCEEDED, expire)
    if job.attempt_count >= job.max_attempts:
        return GiveUp(ErrorCode.ATTEMPTS_EXHAUSTED, expire)
    return Grant(job.attempt_count + 1, expire)


def decide_renew(lease: LeaseSnapshot | None, node: str, boot_id: str, token: str, at: datetime) -> ErrorCode | None:
    """Why a renewal is refused, or `None` when the lease runs on (spec P4).

    A lease whose time is over is dead even if no sweep has said so yet: else its token would outlive its expiry.
    """
    if lease is None or lease.node != node or not hmac.compare_digest(lease.token_sha256, token_hash(token)):
        return ErrorCode.PERMISSION_DENIED
    if lease.boot_id != boot_id:
        return ErrorCode.BOOT_SUPERSEDED
    if not lease.holds(at):
        return ErrorCode.LEASE_FENCED
    return None


def extended(expires_at: datetime, at: datetime, ttl_s: float) -> datetime:
    """The expiry of an active lease after a restart of the controller at this moment.

    While the controller was away nobody could renew: one more TTL from now, never less than what was left.
    """
    return max(expires_at, at + timedelta(seconds=ttl_s))
