"""Jobs, leases and probes moved by their tables: each function is one change inside a transaction, with its audit.

Nothing else writes `jobs.state`, `leases.state` or the state of a probe after it was queued.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bus import states
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.evidence import PhaseMark
from bus.messages.gates import ProbeView
from bus.states import Cause, JobEvent, JobState, LeaseEvent, LeaseState, ProbeEvent, ProbeState
from bus.subjects import Lane
from controller.lease_rules import JobSnapshot, LeaseSnapshot
from controller.store import probes
from controller.store.rows import Row, from_json, json_text, time_of
from controller.store.tx import Tx

CONTROLLER: Final = "controller"
PROBE: Final = "probe"


def node_actor(node: str) -> str:
    """How the audit trail names a node."""
    return f"node:{node}"


def job_of(row: Row) -> JobSnapshot:
    """A row of `jobs`."""
    return JobSnapshot(
        id=row["id"],
        type=row["type"],
        node=row["node"],
        lane=Lane(row["lane"]),
        state=JobState(row["state"]),
        attempt_count=row["attempt_count"],
        max_attempts=row["max_attempts"],
        cancel_requested=bool(row["cancel_requested"]),
        deadline_at=time_of(row["deadline_at"]),
        stream_sequence=row["stream_sequence"],
    )


def lease_of(row: Row) -> LeaseSnapshot:
    """A row of `leases`."""
    return LeaseSnapshot(
        id=row["id"],
        job_id=row["job_id"],
        node=row["node"],
        boot_id=row["boot_id"],
        attempt=row["attempt"],
        token_sha256=row["token_sha256"],
        state=LeaseState(row["state"]),
        delivery=row["delivery"],
        last_sequence=row["last_sequence"],
        expires_at=time_of(row["expires_at"]),
    )


def find(tx: Tx, job_id: str) -> JobSnapshot | None:
    """The job of this exact id."""
    row = tx.one("jobs.by_id", id=job_id)
    return None if row is None else job_of(row)


def newest_lease(tx: Tx, job_id: str) -> LeaseSnapshot | None:
    """The lease of the job's newest attempt, whatever became of it."""
    row = tx.one("leases.newest", job_id=job_id)
    return None if row is None else lease_of(row)


def find_lease(tx: Tx, lease_id: str) -> LeaseSnapshot | None:
    """The lease of this exact id."""
    row = tx.one("leases.by_id", id=lease_id)
    return None if row is None else lease_of(row)


def view(tx: Tx, job: JobSnapshot, *, with_evidence: bool = False) -> ProbeView | None:
    """The picture that an event about this job carries: a probe's, or none."""
    return probes.view(tx, job.id, with_evidence=with_evidence) if job.type == PROBE else None


def tell(tx: Tx, job: JobSnapshot, what: str, actor: str, **detail: object) -> None:
    """Audit something about the job that moves neither it nor its probe."""
    tx.audit(job.type, job.id, what, actor, detail=detail, probe=view(tx, job))


def end_lease(tx: Tx, lease: LeaseSnapshot, event: LeaseEvent, by: Cause) -> None:
    """End an active lease; one that has ended keeps its first reason."""
    state = states.LEASE.advance(lease.state, event, by)
    if state is not lease.state:
        tx.run("leases.end", id=lease.id, state=state, at=tx.at)


def expire_lease(tx: Tx, job: JobSnapshot, lease: LeaseSnapshot) -> None:
    """The time of an attempt is over. The job stays leased until the same node claims it again (spec P4)."""
    end_lease(tx, lease, LeaseEvent.EXPIRE, Cause.CONTROLLER)
    tell(tx, job, "lease-expired", CONTROLLER, lease=lease.id, attempt=lease.attempt)


def timeline_of(tx: Tx, probe_id: str) -> tuple[ProbeState, tuple[PhaseMark, ...]]:
    """A probe's state and every phase mark on record."""
    row = tx.one("evidence.probe", id=probe_id)
    if row is None:
        raise ModelForgeError(ErrorCode.INTERNAL, f"the job {probe_id} has no probe")
    return ProbeState(row["state"]), from_json(row["timeline"], tuple[PhaseMark, ...])


def move_probe(tx: Tx, job: JobSnapshot, event: ProbeEvent, by: Cause, mark: PhaseMark | None = None) -> ProbeState:
    """Move the probe of `job` by its table and append the mark; auditing is the caller's, who knows the reason."""
    state, marks = timeline_of(tx, job.id)
    after = states.PROBE.advance(state, event, by)
    marks = (*marks, mark or PhaseMark(state=after, at=tx.at, attempt=job.attempt_count))
    tx.run("evidence.move", id=job.id, state=after, at=tx.at, timeline=json_text(marks))
    return after


def start_attempt(tx: Tx, job: JobSnapshot, attempt: int) -> JobSnapshot:
    """The job is leased under this attempt; a probe goes (back) to `preparing` (spec P3, P4)."""
    state = states.JOB.advance(job.state, JobEvent.CLAIM, Cause.NODE)
    tx.run("jobs.lease", id=job.id, state=state, attempt=attempt)
    claimed = replace(job, state=state, attempt_count=attempt)
    if job.type == PROBE:
        move_probe(tx, claimed, ProbeEvent.CLAIM, Cause.NODE)
    return claimed


def end_job(tx: Tx, job: JobSnapshot, event: JobEvent, by: Cause, failure: Failure | None) -> JobSnapshot:
    """Move the job to its end. The caller moves the probe and the lease and writes the audit."""
    state = states.JOB.advance(job.state, event, by)
    tx.run("jobs.finish", id=job.id, state=state, at=tx.at, failure=None if failure is None else json_text(failure))
    return replace(job, state=state)


def give_up(tx: Tx, job: JobSnapshot, failure: Failure, actor: str = CONTROLLER) -> JobSnapshot:
    """The controller ends a job that no attempt will end: no attempt, no time or no permission is left (spec F5).

    An active lease is fenced in the same moment, so that a late word of its holder is refused.
    """
    lease = newest_lease(tx, job.id)
    if lease is not None and lease.state is LeaseState.ACTIVE:
        end_lease(tx, lease, LeaseEvent.FENCE, Cause.CONTROLLER)
    late = failure.code == ErrorCode.DEADLINE_EXCEEDED
    ended = end_job(tx, job, JobEvent.EXPIRE if late else JobEvent.FAIL, Cause.CONTROLLER, failure)
    what: str = ended.state
    if job.type == PROBE:
        what = move_probe(tx, ended, ProbeEvent.GIVE_UP, Cause.CONTROLLER)
    detail = {"code": failure.code, "reason": failure.message, "attempt": ended.attempt_count}
    tx.audit(job.type, job.id, what, actor, detail=detail, probe=view(tx, ended, with_evidence=True))
    return ended


def attempts_exhausted(job: JobSnapshot) -> Failure:
    """Why a job without an attempt left ends."""
    message = f"all {job.max_attempts} attempts lost their lease before they finished"
    return ModelForgeError(ErrorCode.ATTEMPTS_EXHAUSTED, message).to_failure()


def deadline_exceeded(job: JobSnapshot) -> Failure:
    """Why a job that is past its deadline ends."""
    message = f"not finished before its deadline, after {job.attempt_count} attempts"
    return ModelForgeError(ErrorCode.DEADLINE_EXCEEDED, message).to_failure()
