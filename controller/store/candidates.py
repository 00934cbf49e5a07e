"""Deployment candidates: the end of M4, written once, never changed (spec G2)."""

from __future__ import annotations

from dataclasses import dataclass

from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import Assessment, Candidate
from controller.store import resolve
from controller.store.rows import Row, from_json, time_of
from controller.store.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A candidate and what its staleness is derived from."""

    candidate: Candidate
    assessment: Assessment
    approval_id: str
    approval_revoked: bool


def find(tx: Tx, typed: str) -> Stored:
    """The candidate that an operator means.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    return get(tx, resolve.by_id(tx, "candidates.resolve", typed, ids.CANDIDATE, "candidate"))


def get(tx: Tx, candidate_id: str) -> Stored:
    """One candidate by its whole id.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("candidates.get", id=candidate_id)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no candidate {candidate_id}")
    return _stored(row)


def list_stored(tx: Tx, limit: int) -> tuple[Stored, ...]:
    """Candidates, newest first."""
    return tuple(_stored(row) for row in tx.all("candidates.list", limit=limit))


def insert(tx: Tx, probe_id: str, assessment: Assessment) -> str:
    """Store the candidate of a completed probe; the schema refuses one of any other probe (spec G5)."""
    candidate_id = ids.new_id(ids.CANDIDATE)
    tx.run(
        "candidates.insert",
        id=candidate_id,
        probe_id=probe_id,
        set_digest=assessment.set_digest,
        profile_id=assessment.profile_id,
        node=assessment.node,
        environment_id=assessment.environment_id,
        fingerprint=assessment.fingerprint,
        at=tx.at,
    )
    return candidate_id


def _stored(row: Row) -> Stored:
    candidate = Candidate(
        id=row["id"],
        probe_id=row["probe_id"],
        set_digest=row["set_digest"],
        profile_id=row["profile_id"],
        profile_name=row["profile_name"],
        node=row["node"],
        environment_id=row["environment_id"],
        fingerprint=row["fingerprint"],
        created_at=time_of(row["created_at"]),
    )
    return Stored(
        candidate=candidate,
        assessment=from_json(row["assessment"], Assessment),
        approval_id=row["approval_id"],
        approval_revoked=row["revoked_at"] is not None,
    )
