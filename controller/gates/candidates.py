"""The last gate of M4: a completed probe becomes a lab-ready candidate, never more (spec G1, G2, G5)."""

from __future__ import annotations

import msgspec

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import Assessment, Candidate, ProbeView
from bus.states import ProbeState
from controller.fingerprint import Now
from controller.store import candidates, estimates, probes, profiles
from controller.store.candidates import Stored
from controller.store.rows import from_json
from controller.store.tx import Tx


def make(tx: Tx, probe_id: str) -> str:
    """Make the candidate of a probe that this same transaction completed; its id.

    Raises:
        ModelForgeError: ILLEGAL_TRANSITION for a probe that is not completed, UNKNOWN_ID.
    """
    view = probes.view(tx, probe_id, with_evidence=True)
    row = tx.one("probes.gate", id=probe_id)
    if view.state is not ProbeState.COMPLETED or row is None:
        message = f"a probe that is {view.state} makes no candidate"
        raise ModelForgeError(ErrorCode.ILLEGAL_TRANSITION, message)
    assessment = from_json(row["assessment"], Assessment)
    candidate_id = candidates.insert(tx, probe_id, assessment)
    _keep_estimate_error(tx, view, assessment)
    detail = {
        "probe": probe_id,
        "set": view.set_digest,
        "profile": view.profile_id,
        "node": view.node,
        "fingerprint": assessment.fingerprint,
    }
    tx.audit("candidate", candidate_id, "lab-ready", "controller", detail=detail)
    return candidate_id


def _keep_estimate_error(tx: Tx, view: ProbeView, assessment: Assessment) -> None:
    """The estimate beside what was measured, where both are of the same kind (spec A11)."""
    memory = view.evidence.memory if view.evidence is not None else None
    estimated = assessment.estimate.size_bytes if assessment.estimate is not None else 0
    if memory is None or not estimated or memory.peak_bytes is None or memory.peak_bytes <= 0:
        return
    if memory.source in estimates.COMPARABLE[profiles.get(tx, view.profile_id).profile.device]:
        estimates.insert(
            tx,
            view.id,
            assessment,
            estimated_bytes=estimated,
            measured_bytes=memory.peak_bytes,
            source=memory.source,
        )


def show(stored: Stored, now: Now) -> Candidate:
    """The candidate as it stands now: what made its evidence stale is derived, never stored (spec A18)."""
    reasons = now.stale_because(stored.assessment)
    if stored.approval_revoked:
        reasons = (*reasons, f"the approval {stored.approval_id} was revoked")
    return msgspec.structs.replace(stored.candidate, stale_because=reasons)
