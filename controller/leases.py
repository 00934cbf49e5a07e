"""Leases in the ledger: claim, renew, refuse and extend, each one transaction (design section 4, spec P4).

A refusal that must be remembered is returned, not raised: what raises is rolled back, and its audit with it.
"""

from __future__ import annotations

from datetime import timedelta

from bus import ids
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages import api
from bus.states import LeaseState
from controller import boots, jobs
from controller.gates import probes as probe_gate
from controller.lease_rules import (
    AlreadyYours,
    Ended,
    GiveUp,
    Grant,
    JobSnapshot,
    Wait,
    check_delivery,
    decide_claim,
    decide_renew,
    extended,
    token_hash,
)
from controller.store.tx import Tx


def claim(tx: Tx, node: str, request: api.ClaimRequest, ttl_s: float) -> api.AnyClaim:
    """May this boot of this node work on the delivery? A compare-and-set in one transaction (spec P4)."""
    try:
        boots.require(tx, node, request.boot_id)
        job = _own_job(tx, node, request.job_id)
        check_delivery(request.delivery, node, job.lane)
    except ModelForgeError as error:
        return api.ClaimRefused(failure=_refused(tx, node, request.job_id, "claim-refused", error))
    decision = decide_claim(job, jobs.newest_lease(tx, job.id), request.boot_id, tx.at)
    match decision:
        case Ended(state):
            return api.ClaimTerminal(state=state)
        case Wait(delay_s):
            return api.ClaimRetryAfter(delay_s=delay_s)
        case AlreadyYours(lease_id, attempt):
            tx.run("leases.redeliver", id=lease_id, delivery=request.delivery)
            return api.ClaimAlreadyYours(lease_id=lease_id, attempt=attempt)
        case GiveUp(code, expire):
            _expire(tx, job, expire)
            late = code is ErrorCode.DEADLINE_EXCEEDED
            failure = jobs.deadline_exceeded(job) if late else jobs.attempts_exhausted(job)
            return api.ClaimTerminal(state=jobs.give_up(tx, job, failure).state)
        case Grant(attempt, expire):
            _expire(tx, job, expire)
            return _grant(tx, job, attempt, request, ttl_s)


def _grant(tx: Tx, job: JobSnapshot, attempt: int, request: api.ClaimRequest, ttl_s: float) -> api.AnyClaim:
    """A new attempt under a new token, unless the gates that let the probe into the queue say no by now (spec G4)."""
    if job.type == jobs.PROBE:
        obstacle = probe_gate.still_allowed(tx, job.id)
        if obstacle is not None:
            return api.ClaimTerminal(state=jobs.give_up(tx, job, obstacle).state)
    lease_id, token = ids.new_id(ids.LEASE), ids.new_token()
    expires_at = tx.at + timedelta(seconds=ttl_s)
    tx.run(
        "leases.insert", id=lease_id, job_id=job.id, node=job.node, boot_id=request.boot_id, attempt=attempt,
        token_sha256=token_hash(token), delivery=request.delivery, at=tx.at, expires_at=expires_at,
    )  # fmt: skip
    claimed = jobs.start_attempt(tx, job, attempt)
    what = "preparing" if job.type == jobs.PROBE else "leased"
    jobs.tell(tx, claimed, what, jobs.node_actor(job.node), lease=lease_id, attempt=attempt, boot=request.boot_id)
    return api.ClaimGranted(
        lease_id=lease_id, attempt=attempt, token=token, ttl_s=ttl_s, cancel_requested=job.cancel_requested
    )


def renew(tx: Tx, node: str, request: api.RenewRequest, ttl_s: float) -> api.AnyRenewal:
    """One more TTL for the attempt that holds the lease, or the word that it is over (spec P4)."""
    lease = jobs.find_lease(tx, request.lease_id)
    code = decide_renew(lease, node, request.boot_id, request.token, tx.at)
    if code is None and boots.is_dead(tx, node, request.boot_id):
        code = ErrorCode.BOOT_SUPERSEDED
    job = None if lease is None else jobs.find(tx, lease.job_id)
    if code is None and lease is not None and job is not None:
        tx.run("leases.renew", id=lease.id, expires_at=max(lease.expires_at, tx.at + timedelta(seconds=ttl_s)))
        return api.Renewed(ttl_s=ttl_s, cancel_requested=job.cancel_requested)
    if code is ErrorCode.LEASE_FENCED and lease is not None and job is not None:
        if lease.state is LeaseState.ACTIVE:
            jobs.expire_lease(tx, job, lease)
        error = ModelForgeError(code, "the lease is over", lease=lease.id, job_state=job.state)
        return api.Fenced(failure=error.to_failure())
    error = ModelForgeError(code or ErrorCode.LEASE_FENCED, "this is not the holder of the lease")
    known = lease.job_id if lease is not None else request.lease_id
    return api.Fenced(failure=_refused(tx, node, known, "renew-refused", error))


def holder(tx: Tx, node: str, boot_id: str, lease_id: str, token: str) -> JobSnapshot | ModelForgeError:
    """The job that this boot of this node works on under the lease, or why it does not (spec P4); changes nothing."""
    lease = jobs.find_lease(tx, lease_id)
    code = decide_renew(lease, node, boot_id, token, tx.at)
    if code is None and boots.is_dead(tx, node, boot_id):
        code = ErrorCode.BOOT_SUPERSEDED
    job = None if lease is None else jobs.find(tx, lease.job_id)
    if code is None and job is not None:
        return job
    over = code in {None, ErrorCode.LEASE_FENCED}
    message = "the lease is over" if over else "this is not the holder of the lease"
    return ModelForgeError(code or ErrorCode.LEASE_FENCED, message)


def refuse(tx: Tx, node: str, request: api.RefuseRequest, failure: Failure) -> api.Refused:
    """End a job that its node cannot do, whatever its message says; it is failed typed, never lost.

    Raises:
        ModelForgeError: BOOT_SUPERSEDED or BOOT_CONFLICT for a boot that does not speak for the node,
            PERMISSION_DENIED for another node's job or delivery, LEASE_FENCED while another boot works on it.
    """
    boots.require(tx, node, request.boot_id)
    job = jobs.find(tx, request.job_id)
    if job is None:
        return api.Refused(state="unknown")
    if job.node != node:
        raise _not_yours(request.job_id)
    check_delivery(request.delivery, node, job.lane)
    if job.terminal:
        return api.Refused(state="terminal")
    lease = jobs.newest_lease(tx, job.id)
    if lease is not None and lease.holds(tx.at) and lease.boot_id != request.boot_id:
        raise ModelForgeError(ErrorCode.LEASE_FENCED, "another boot works on this job")
    jobs.give_up(tx, job, failure, jobs.node_actor(node))
    return api.Refused(state="failed")


def extend_all(tx: Tx, ttl_s: float) -> int:
    """Give every active lease one more TTL: nobody could renew while the controller was away. How many there are."""
    return tx.run("leases.extend_all", expires_at=extended(tx.at, tx.at, ttl_s))


def _own_job(tx: Tx, node: str, job_id: str) -> JobSnapshot:
    job = jobs.find(tx, job_id)
    if job is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"no job is named {job_id!r}")
    if job.node != node:
        raise _not_yours(job_id)
    return job


def _not_yours(job_id: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.PERMISSION_DENIED, f"the job {job_id!r} belongs to another node")


def _expire(tx: Tx, job: JobSnapshot, lease_id: str | None) -> None:
    lease = None if lease_id is None else jobs.find_lease(tx, lease_id)
    if lease is not None:
        jobs.expire_lease(tx, job, lease)


def _refused(tx: Tx, node: str, job_id: str, what: str, error: ModelForgeError) -> Failure:
    """Audit a refusal under the job that was named, so that the trail of a job shows who reached for it."""
    tx.audit_refusal("lease", job_id, what, node, detail={"code": error.code, "reason": error.message})
    return error.to_failure()
