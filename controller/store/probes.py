"""Probes as rows and as operators see them. Their states are moved by `controller.jobs` alone."""

from __future__ import annotations

from collections.abc import Collection

from bus import ids, states
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.api import LogView
from bus.messages.evidence import MemorySource, PhaseMark, ProbeEvidence
from bus.messages.gates import Assessment, ProbeView, Proof, StartMethod
from bus.messages.profiles import RuntimeProfile
from bus.states import ProbeState
from controller.store import resolve
from controller.store.rows import Row, from_json, json_text, optional_json, optional_time, time_of
from controller.store.tx import Tx


def find(tx: Tx, typed: str) -> str:
    """The id of the probe that an operator means.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    return resolve.by_id(tx, "probes.resolve", typed, ids.PROBE, "probe")


def view(tx: Tx, probe_id: str, *, with_evidence: bool = False) -> ProbeView:
    """One probe by its whole id.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("probes.get", id=probe_id)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no probe {probe_id}")
    return _view(row, with_evidence=with_evidence)


def list_views(tx: Tx, limit: int) -> tuple[ProbeView, ...]:
    """Probes without their evidence, newest first."""
    return tuple(_view(row, with_evidence=False) for row in tx.all("probes.list", limit=limit))


def proofs(tx: Tx, fingerprints: Collection[str]) -> dict[str, Proof]:
    """What the newest completed probe under each of these fingerprints proved; those without one are left out.

    A fingerprint holds set, profile and node, so an equal one is of the very same three.
    """
    rows = tx.all("probes.proofs", fingerprints=json_text(sorted(fingerprints)))
    return {row["fingerprint"]: _proof(row) for row in rows}


def _proof(row: Row) -> Proof:
    return Proof(
        probe_id=row["probe_id"],
        candidate_id=row["candidate_id"],
        task=row["task"],
        fingerprint=row["fingerprint"],
        completed_at=time_of(row["completed_at"]),
        load_ms=row["load_ms"],
        inference_ms=row["inference_ms"],
        memory_bytes=row["memory_bytes"],
        memory_source=MemorySource(row["memory_source"] or MemorySource.UNAVAILABLE),
    )


def log(tx: Tx, probe_id: str, attempt: int | None) -> LogView:
    """The bounded log of one attempt, the newest by default (spec P12).

    Raises:
        ModelForgeError: UNKNOWN_ID when no log of it was stored; the message says whether one is still to come.
    """
    if attempt is None:
        row = tx.one("probes.last_log", probe_id=probe_id)
    else:
        row = tx.one("probes.log", probe_id=probe_id, attempt=attempt)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, _no_log(view(tx, probe_id), attempt))
    return LogView(
        ref=row["ref"],
        attempt=row["attempt"],
        text=row["body"],
        dropped_bytes=row["dropped_bytes"],
        at=time_of(row["at"]),
    )


def _no_log(probe: ProbeView, attempt: int | None) -> str:
    """Why there is no log: a node sends it with the end of an attempt, so one that runs has none and is not at fault."""
    if attempt is not None and not 0 < attempt <= probe.attempt:
        return f"{probe.id} has no attempt {attempt}: it is {probe.state}, with {probe.attempt} begun so far"
    which = probe.attempt if attempt is None else attempt
    if states.PROBE.is_terminal(probe.state) or which < probe.attempt:
        ended = f"attempt {which} of {probe.id}" if which else f"{probe.id}, which no node began,"
        return f"there is no log of {ended}: its node reported no end of it"
    if which == 0:
        return f"{probe.id} waits for its node: a log comes with the end of its first attempt"
    return f"attempt {which} of {probe.id} is {probe.state}: its log comes with the end of the attempt"


def insert(
    tx: Tx,
    probe_id: str,
    assessment: Assessment,
    *,
    approval_id: str,
    location: str,
    start_method: StartMethod,
) -> None:
    """Store a new, queued probe; its job must be there. Attempt 0 of the first mark: nobody has claimed it yet."""
    mark = PhaseMark(state=ProbeState.QUEUED, at=tx.at, attempt=0)
    tx.run(
        "probes.insert",
        id=probe_id,
        assessment_id=assessment.id,
        approval_id=approval_id,
        set_digest=assessment.set_digest,
        profile_id=assessment.profile_id,
        node=assessment.node,
        location=location,
        start_method=start_method,
        state=ProbeState.QUEUED,
        at=tx.at,
        timeline=json_text((mark,)),
    )


def log_ref(node: str, probe_id: str, attempt: int) -> str | None:
    """The reference of an attempt's log; `None` before the first claim (spec P12)."""
    return ids.log_ref(node, probe_id, attempt) if attempt > 0 else None


def _view(row: Row, *, with_evidence: bool) -> ProbeView:
    return ProbeView(
        id=row["id"],
        state=ProbeState(row["state"]),
        node=row["node"],
        location=row["location"],
        set_digest=row["set_digest"],
        profile_id=row["profile_id"],
        profile_name=row["profile_name"],
        assessment_id=row["assessment_id"],
        approval_id=row["approval_id"],
        attempt=row["attempt_count"],
        max_attempts=row["max_attempts"],
        queued_at=time_of(row["queued_at"]),
        queued_by=row["queued_by"],
        state_at=time_of(row["state_at"]),
        start_method=row["start_method"],
        budgets=from_json(row["profile"], RuntimeProfile).budgets,
        timeline=from_json(row["timeline"], tuple[PhaseMark, ...]),
        finished_at=optional_time(row["finished_at"]),
        cancel_requested=bool(row["cancel_requested"]),
        failure=optional_json(row["failure"], Failure),
        log_ref=log_ref(row["node"], row["id"], row["attempt_count"]),
        candidate_id=row["candidate_id"],
        evidence=optional_json(row["evidence"], ProbeEvidence) if with_evidence else None,
    )
