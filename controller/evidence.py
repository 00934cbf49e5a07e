"""Evidence in: every word of a node is judged, applied and audited in one transaction (spec B1, G5, G6, P3).

Nothing here waits for the bus: the loop that pulls, acknowledges and gives back is `controller.intake`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from bus.codec import decode
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.artifacts import Manifest, SetEvidence
from bus.messages.evidence import AnyEvidence, Evidence, PhaseMark, ProbeFinished, ProbePhase, ScanFinished
from bus.states import Cause, JobEvent, LeaseEvent, ProbeState
from bus.text import clean_line, clean_text, redact
from controller import boots, jobs
from controller.cleaning import cleaned
from controller.evidence_rules import (
    PHASE_EVENTS,
    Accept,
    Duplicate,
    Ending,
    Refusal,
    Steps,
    end_failure,
    judge_probe_end,
    judge_sender,
    judge_timeline,
)
from controller.gates import artifact_sets, candidates, expectations
from controller.lease_rules import JobSnapshot, LeaseSnapshot
from controller.store import scans
from controller.store.probes import log_ref
from controller.store.rows import json_text
from controller.store.tx import Tx
from observability.counters import Outcome

T = TypeVar("T")
MAX_LOG_CHARS: Final = 400_000
MAX_ID_CHARS: Final = 64
FIRST_MOMENT: Final = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScanParts:
    """What a scan that succeeded says it found, read before the transaction, or why that cannot be read."""

    found: tuple[Manifest, SetEvidence] | ModelForgeError


def scan_parts(message: ScanFinished, manifest: bytes | None = None, evidence: bytes | None = None) -> ScanParts:
    """Decode both parts: from the message itself, or from the blobs that it names, when their bytes are given."""
    try:
        return ScanParts(
            (
                _part(message.manifest_json, manifest, Manifest),
                _part(message.evidence_json, evidence, SetEvidence),
            )
        )
    except ModelForgeError as error:
        return ScanParts(error)


def apply(tx: Tx, message: AnyEvidence, subject_node: str, parts: ScanParts | None = None) -> Outcome:
    """Judge one message and apply it, or audit why not. Every message may be acknowledged after the commit.

    `parts` are those of a scan that names blobs; a message that carries its parts needs none.
    """
    verdict = judge_sender(
        message,
        subject_node,
        jobs.find(tx, message.job_id),
        jobs.find_lease(tx, message.lease_id),
        boot_is_dead=boots.is_dead(tx, subject_node, message.boot_id),
    )
    match verdict:
        case Duplicate():
            return Outcome.DUPLICATE
        case Refusal():
            return refuse(tx, message, subject_node, verdict)
        case Accept(job, lease):
            handled = _apply_accepted(tx, message, job, lease, parts)
            return refuse(tx, message, subject_node, handled) if isinstance(handled, Refusal) else handled


def _apply_accepted(
    tx: Tx, message: AnyEvidence, job: JobSnapshot, lease: LeaseSnapshot, parts: ScanParts | None
) -> Outcome | Refusal:
    if isinstance(message, ScanFinished):
        if job.type == jobs.PROBE:
            return Refusal(ErrorCode.EVIDENCE_REFUSED, "the job is no scan")
        return _end_scan(tx, message, job, lease, parts or scan_parts(message))
    if job.type != jobs.PROBE:
        return Refusal(ErrorCode.EVIDENCE_REFUSED, "the job is no probe")
    state, known = jobs.timeline_of(tx, job.id)
    steps = judge_timeline(known, message.timeline, state, lease.attempt)
    if isinstance(steps, Refusal):
        return steps
    if isinstance(message, ProbePhase):
        _take_steps(tx, job, lease, message.sequence, steps)
        return Outcome.SUCCEEDED
    ending = judge_probe_end(message, steps.state, cancel_requested=job.cancel_requested)
    if isinstance(ending, Refusal):
        return ending
    _take_steps(tx, job, lease, message.sequence, steps)
    return _end_probe(tx, message, job, lease, ending)


def _take_steps(tx: Tx, job: JobSnapshot, lease: LeaseSnapshot, sequence: int, steps: Steps) -> None:
    """Each phase that is new is one state change with its own audit, in the order in which the node lived it."""
    tx.run("leases.advance", id=lease.id, sequence=sequence)
    for mark in steps.marks:
        cleaned = PhaseMark(state=mark.state, at=_utc(mark.at), attempt=mark.attempt)
        state = jobs.move_probe(tx, job, PHASE_EVENTS[mark.state], Cause.NODE, cleaned)
        jobs.tell(tx, job, state, jobs.node_actor(job.node), attempt=mark.attempt)


def _utc(at: datetime) -> datetime:
    """A node's time with its zone: one without would break whoever compares it with another."""
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    try:
        return at.astimezone(UTC)
    except OverflowError:
        # The first or last day of the calendar in a zone that is a day off: a moment all the same, not a fault.
        return FIRST_MOMENT if at.year == FIRST_MOMENT.year else LAST_MOMENT


def _end_probe(tx: Tx, message: ProbeFinished, job: JobSnapshot, lease: LeaseSnapshot, ending: Ending) -> Outcome:
    """Evidence, log, state, lease and, for a pass, the candidate: one transaction (spec G5, P12)."""
    if message.evidence is not None:
        tx.run("evidence.store", id=job.id, evidence=json_text(cleaned(message.evidence)))
    tx.run(
        "evidence.log",
        probe_id=job.id,
        attempt=lease.attempt,
        ref=log_ref(job.node, job.id, lease.attempt),
        body=redact(clean_text(message.log_text, MAX_LOG_CHARS)),
        dropped_bytes=max(0, message.log_dropped_bytes),
        at=tx.at,
    )
    ended = jobs.end_job(tx, job, ending.job_event, Cause.NODE, ending.failure)
    state = jobs.move_probe(tx, ended, ending.probe_event, Cause.NODE)
    jobs.end_lease(tx, lease, LeaseEvent.RELEASE, Cause.NODE)
    candidate = candidates.make(tx, job.id) if state is ProbeState.COMPLETED else None
    detail = _end_detail(lease, ending.failure)
    if ending.note:
        detail["note"] = ending.note
    if candidate is not None:
        detail["candidate"] = candidate
    picture = jobs.view(tx, ended, with_evidence=True)
    tx.audit(job.type, job.id, state, jobs.node_actor(job.node), detail=detail, probe=picture)
    if ending.failure is not None and picture is not None:
        artifact_sets.location_lost(
            tx, job.node, picture.location, ending.failure, job_id=job.id, digest=picture.set_digest
        )
    return Outcome.SUCCEEDED


def _end_scan(tx: Tx, message: ScanFinished, job: JobSnapshot, lease: LeaseSnapshot, parts: ScanParts) -> Outcome:
    tx.run("leases.advance", id=lease.id, sequence=message.sequence)
    failure: Failure | None = None
    digest: str | None = None
    if message.outcome == "succeeded":
        digest, failure = _found(tx, job, parts)
    else:
        failure = end_failure(message.outcome, message.failure, cancel_requested=job.cancel_requested)
    event = JobEvent.SUCCEED
    if failure is not None:
        cancelled = message.outcome == "cancelled" and job.cancel_requested
        event = JobEvent.CANCEL if cancelled else JobEvent.FAIL
    ended = jobs.end_job(tx, job, event, Cause.NODE, failure)
    jobs.end_lease(tx, lease, LeaseEvent.RELEASE, Cause.NODE)
    detail = _end_detail(lease, failure)
    if digest is not None:
        detail["set_digest"] = digest
    tx.audit(job.type, job.id, ended.state, jobs.node_actor(job.node), detail=detail)
    if failure is not None:
        artifact_sets.location_lost(tx, job.node, scans.view(tx, job.id).path, failure, job_id=job.id)
    return Outcome.SUCCEEDED


def _found(tx: Tx, job: JobSnapshot, parts: ScanParts) -> tuple[str | None, Failure | None]:
    """Record what the scan found: the set's digest, or why there is none."""
    try:
        if isinstance(parts.found, ModelForgeError):
            raise parts.found
        manifest, evidence = parts.found
        artifact_sets.check_manifest(manifest)
        failure = expectations.mismatch(tx, job.id, manifest)
        if failure is not None:
            path = scans.view(tx, job.id).path
            expectations.lose_other(tx, job.node, path, manifest.digest(), failure, job_id=job.id)
            return None, failure
        digest = artifact_sets.record_scan(tx, job.id, job.node, manifest, evidence)
    except ModelForgeError as error:
        return None, error.to_failure()
    expectations.meet(tx, job.id, digest, job.node)
    return digest, None


def _part(text: str | None, blob: bytes | None, type_: type[T]) -> T:
    if text is None and blob is None:
        raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, f"a scan that succeeded names no {type_.__name__}")
    return decode(blob if blob is not None else str(text).encode(), type_)


def _end_detail(lease: LeaseSnapshot, failure: Failure | None) -> dict[str, str]:
    detail = {"lease": lease.id, "attempt": str(lease.attempt)}
    return detail if failure is None else {**detail, "code": failure.code, "reason": failure.message}


def refuse(tx: Tx, message: Evidence, subject_node: str, refusal: Refusal) -> Outcome:
    """Audit evidence that is not applied, under the job that it names."""
    detail = {
        "code": refusal.code,
        "reason": refusal.reason,
        "said_node": clean_line(message.node, MAX_ID_CHARS),
        "lease": clean_line(message.lease_id, MAX_ID_CHARS),
        "attempt": str(message.attempt),
        "sequence": str(message.sequence),
    }
    tx.audit_refusal("evidence", clean_line(message.job_id, MAX_ID_CHARS), "refused", subject_node, detail=detail)
    return Outcome.REFUSED
