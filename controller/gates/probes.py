"""The third gate: the fixed-input probe of an assessed and approved set (spec G1, G4, A19, P1, P5)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from bus import ids
from bus.digest import canonical_json
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.api import CancelRequest, QueueProbeRequest
from bus.messages.artifacts import Manifest
from bus.messages.blobs import MAX_INLINE_BYTES
from bus.messages.gates import Approval, Assessment, ProbeView
from bus.messages.inventory import NodeView
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import ProfileView
from bus.states import Cause, JobEvent, JobState, ProbeEvent
from bus.subjects import Caller
from bus.text import clean_line
from controller import jobs
from controller.facts import declared
from controller.fingerprint import Now, location_of
from controller.gates import work
from controller.gates.caller import MAX_REASON_CHARS, actor_of, request_key
from controller.settings import ControllerSettings
from controller.store import approvals, assessments, nodes, probes, profiles, sets
from controller.store.nodes import Silence
from controller.store.rows import from_json, optional_time
from controller.store.tx import Tx

PURPOSE: Final = "lab_execution"


def queue(tx: Tx, settings: ControllerSettings, caller: Caller, request: QueueProbeRequest) -> ProbeView:
    """Pass the gates and queue the probe: job, probe, audit and outbox in this one transaction.

    A repeated request gives the same probe, whatever the gates say by then.

    Raises:
        ModelForgeError: UNKNOWN_ID, AMBIGUOUS_ID, ASSESSMENT_STALE, ASSESSMENT_BLOCKED, RUNTIME_INCOMPATIBLE (the
            node cannot execute the adapter), NOT_APPROVED, NODE_OFFLINE, INVALID_ARGUMENT.
    """
    key = request_key(caller, request.request_id)
    assessment = assessments.find(tx, request.assessment_id)
    before = work.known(tx, key, "probe")
    if before is not None:
        return _same_probe(probes.view(tx, before), assessment)
    approval = _pass_gates(tx, settings, assessment)
    # The very place that was assessed: that it holds the set still is part of the gates just passed.
    location = location_of(assessment)
    manifest = sets.get(tx, assessment.set_digest).manifest
    if location is None or manifest is None:
        raise ModelForgeError(ErrorCode.INTERNAL, "a compatible assessment has no location or manifest")
    profile = profiles.get(tx, assessment.profile_id)
    probe_id = ids.new_id(ids.PROBE)
    deadline_at = _deadline(tx.at, settings, profile)
    job = _job(probe_id, assessment, approval, profile, manifest, location, request, deadline_at)
    work.put(
        tx,
        work.Order(
            type="probe",
            job=job,
            request_key=key,
            max_attempts=settings.max_attempts,
            deadline_at=deadline_at,
            caller=caller,
        ),
    )
    probes.insert(
        tx, probe_id, assessment, approval_id=approval.id, location=location, start_method=request.start_method
    )
    view = probes.view(tx, probe_id)
    detail = {
        "assessment": assessment.id,
        "approval": approval.id,
        "set": assessment.set_digest,
        "node": assessment.node,
        "fingerprint": assessment.fingerprint,
    }
    tx.audit("probe", probe_id, "queued", actor_of(caller), detail=detail, probe=view)
    return view


def _same_probe(view: ProbeView, assessment: Assessment) -> ProbeView:
    if view.assessment_id != assessment.id:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "request_id was used for another probe")
    return view


def _pass_gates(tx: Tx, settings: ControllerSettings, assessment: Assessment) -> Approval:
    """Every gate in its order; the valid approval of exactly this set.

    A set that nothing blocks may be probed, whether static analysis claims that it will run or makes no claim.
    """
    check_current(tx, assessment)
    if assessment.verdict == "blocked":
        codes = ", ".join(found.code for found in assessment.findings if found.severity == "blocker")
        message = f"the assessment {assessment.id} is blocked: {codes}"
        raise ModelForgeError(ErrorCode.ASSESSMENT_BLOCKED, message, assessment=assessment.id, blockers=codes)
    node = nodes.view(tx, assessment.node, silence_of(settings))
    _check_executable(node, assessment.adapter)
    approval = approvals.valid(tx, assessment.set_digest, PURPOSE)
    if approval is None:
        message = f"no valid approval of {assessment.set_digest} for {PURPOSE}"
        raise ModelForgeError(ErrorCode.NOT_APPROVED, message, set=assessment.set_digest, purpose=PURPOSE)
    if node.liveness == "offline":
        message = f"the node {node.name} has not been heard of lately"
        raise ModelForgeError(ErrorCode.NODE_OFFLINE, message, node=node.name)
    return approval


def _check_executable(node: NodeView, adapter: str) -> None:
    """Pass if the node can run the adapter now: a probe that nobody could carry out is not queued."""
    found = None if node.inventory is None else declared(node.inventory.environment, adapter)
    if found is not None and found.executable:
        return
    if found is None:
        reason = "the node declares no such adapter"
    elif found.inspect_only:
        reason = "this version assesses sets for it and cannot run it anywhere"
    else:
        reason = found.reason or "the node gives no reason"
    message = f"the adapter {adapter} cannot be executed on {node.name}: {reason}"
    raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, message, node=node.name, adapter=adapter)


def check_current(tx: Tx, assessment: Assessment) -> None:
    """Pass if the facts of the assessment are the facts now (spec A19).

    Raises:
        ModelForgeError: ASSESSMENT_STALE naming what changed.
    """
    changed = Now(tx).stale_because(assessment)
    if changed:
        message = f"the assessment {assessment.id} is stale: {'; '.join(changed)}"
        raise ModelForgeError(ErrorCode.ASSESSMENT_STALE, message, assessment=assessment.id)


def still_allowed(tx: Tx, probe_id: str) -> Failure | None:
    """May a queued probe still be claimed? Why not, when its approval was revoked or its assessment went stale.

    Asked in the transaction of the claim, so that nothing starts under a word that was taken back.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("probes.gate", id=probe_id)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no probe {probe_id}")
    revoked_at = optional_time(row["revoked_at"])
    if revoked_at is not None or row["approved_digest"] != row["set_digest"] or row["purpose"] != PURPOSE:
        message = f"the approval {row['approval_id']} is no longer valid"
        return ModelForgeError(ErrorCode.NOT_APPROVED, message, approval=row["approval_id"]).to_failure()
    try:
        check_current(tx, from_json(row["assessment"], Assessment))
    except ModelForgeError as error:
        if error.code is not ErrorCode.ASSESSMENT_STALE:
            raise
        return error.to_failure()
    return None


def cancel(tx: Tx, caller: Caller, request: CancelRequest) -> ProbeView:
    """Cancel: a queued probe ends at once, a leased one is asked to end (spec P10).

    Asking twice changes nothing. The hint to the node is published after the commit.

    Raises:
        ModelForgeError: UNKNOWN_ID, AMBIGUOUS_ID, JOB_TERMINAL.
    """
    probe_id = probes.find(tx, request.id)
    job = jobs.find(tx, probe_id)
    if job is None:
        raise ModelForgeError(ErrorCode.INTERNAL, f"the probe {probe_id} has no job")
    if job.terminal:
        state = probes.view(tx, probe_id).state
        raise ModelForgeError(ErrorCode.JOB_TERMINAL, f"the probe {probe_id} is {state} already", state=state)
    reason = clean_line(request.reason.strip(), MAX_REASON_CHARS) or "no reason given"
    detail = {"reason": reason, "attempt": job.attempt_count}
    if job.state is JobState.QUEUED:
        failure = ModelForgeError(ErrorCode.CANCELLED, f"cancelled by {caller.name}: {reason}").to_failure()
        jobs.end_job(tx, job, JobEvent.CANCEL, Cause.OPERATOR, failure)
        jobs.move_probe(tx, job, ProbeEvent.CANCEL, Cause.OPERATOR)
        tx.run("outbox.drop_job", job_id=probe_id)
        view = probes.view(tx, probe_id, with_evidence=True)
        tx.audit("probe", probe_id, "cancelled", actor_of(caller), detail=detail, probe=view)
        return view
    if not job.cancel_requested:
        tx.run("jobs.request_cancel", id=probe_id)
        tx.audit(
            "probe", probe_id, "cancel-requested", actor_of(caller), detail=detail, probe=probes.view(tx, probe_id)
        )
    return probes.view(tx, probe_id)


def silence_of(settings: ControllerSettings) -> Silence:
    """When a node counts as doubtful and offline, by the settings."""
    return Silence(doubtful_after_s=settings.doubtful_after_s, offline_after_s=settings.offline_after_s)


def _deadline(at: datetime, settings: ControllerSettings, profile: ProfileView) -> datetime:
    """The wait in the queue plus every attempt's whole budget: a job never outlives it (spec F5)."""
    seconds = settings.probe_queue_wait_s + profile.profile.budgets.total_s * settings.max_attempts
    return at + timedelta(seconds=seconds)


def _job(
    probe_id: str,
    assessment: Assessment,
    approval: Approval,
    profile: ProfileView,
    manifest: Manifest,
    location: str,
    request: QueueProbeRequest,
    deadline_at: datetime,
) -> ProbeJob:
    # The node fetches a large one by range: a job is one message (`blob.get`).
    size_bytes = len(canonical_json(manifest))
    left_out = size_bytes > MAX_INLINE_BYTES
    return ProbeJob(
        job_id=probe_id,
        node=assessment.node,
        probe_type="embedding_fixed_input",
        location=location,
        set_digest=assessment.set_digest,
        manifest=None if left_out else manifest,
        manifest_bytes=size_bytes if left_out else 0,
        profile=profile.profile,
        profile_id=profile.id,
        environment_id=assessment.environment_id,
        assessment_id=assessment.id,
        approval_id=approval.id,
        fingerprint=assessment.fingerprint,
        start_method=request.start_method,
        deadline_at=deadline_at,
    )
