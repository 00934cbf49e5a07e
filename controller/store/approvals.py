"""Approvals: who let which exact set be used for what, and why (spec G4)."""

from __future__ import annotations

from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import Approval, Purpose
from controller.store import resolve
from controller.store.rows import Row, optional_time, time_of
from controller.store.tx import Tx


def find(tx: Tx, typed: str) -> Approval:
    """The approval that an operator means.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    return get(tx, resolve.by_id(tx, "approvals.resolve", typed, ids.APPROVAL, "approval"))


def get(tx: Tx, approval_id: str) -> Approval:
    """One approval by its whole id.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("approvals.get", id=approval_id)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no approval {approval_id}")
    return _approval(row)


def valid(tx: Tx, set_digest: str, purpose: Purpose) -> Approval | None:
    """The valid approval of exactly this digest for this purpose."""
    row = tx.one("approvals.valid", set_digest=set_digest, purpose=purpose)
    return None if row is None else _approval(row)


def valid_ids(tx: Tx, set_digest: str) -> tuple[str, ...]:
    """All valid approvals of exactly this digest, for whatever purpose."""
    return tuple(row["id"] for row in tx.all("approvals.valid_of_set", set_digest=set_digest))


def list_approvals(tx: Tx, limit: int) -> tuple[Approval, ...]:
    """Approvals, revoked ones too, newest first."""
    return tuple(_approval(row) for row in tx.all("approvals.list", limit=limit))


def insert(tx: Tx, set_digest: str, purpose: Purpose, approved_by: str, reason: str) -> Approval:
    """Store a new approval; the schema refuses a second valid one for the same set and purpose."""
    approval_id = ids.new_id(ids.APPROVAL)
    tx.run(
        "approvals.insert",
        id=approval_id,
        set_digest=set_digest,
        purpose=purpose,
        approved_by=approved_by,
        reason=reason,
        at=tx.at,
    )
    return get(tx, approval_id)


def revoke(tx: Tx, approval_id: str, revoked_by: str, reason: str) -> Approval:
    """Take an approval back; one that is revoked already keeps its first revocation."""
    tx.run("approvals.revoke", id=approval_id, revoked_by=revoked_by, reason=reason, at=tx.at)
    return get(tx, approval_id)


def _approval(row: Row) -> Approval:
    return Approval(
        id=row["id"],
        set_digest=row["set_digest"],
        purpose=row["purpose"],
        approved_by=row["approved_by"],
        reason=row["reason"],
        approved_at=time_of(row["approved_at"]),
        revoked_by=row["revoked_by"],
        revoked_at=optional_time(row["revoked_at"]),
        revoke_reason=row["revoke_reason"],
    )
