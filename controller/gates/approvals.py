"""Approvals: a person's word that one exact set may be used for one purpose (spec G4)."""

from __future__ import annotations

from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ApproveRequest, RevokeRequest
from bus.messages.gates import Approval
from bus.subjects import Caller
from controller.gates.caller import actor_of, checked_reason
from controller.store import approvals, quarantines, sets
from controller.store.tx import Tx

RELEASE: Final = "quarantine_release"
SUPERSEDED: Final = "superseded: something was quarantined after it"


def add(tx: Tx, caller: Caller, request: ApproveRequest) -> Approval:
    """Approve one exact set; one that is valid already is returned as it is.

    A release from quarantine covers what was quarantined before it. When something was quarantined since, the older
    release ends and a new one begins, in this one transaction.

    The purpose `production` is recorded and opens nothing here: routing needs more than a word (spec G3).

    Raises:
        ModelForgeError: INVALID_ARGUMENT without a reason, or to release what is not quarantined; UNKNOWN_ID,
            AMBIGUOUS_ID.
    """
    reason = checked_reason(request.reason)
    digest = sets.find(tx, request.set_digest)
    before = approvals.valid(tx, digest, request.purpose)
    if request.purpose == RELEASE:
        newest = quarantines.newest_of_set(tx, digest)
        if newest is None:
            message = "no member of this set is quarantined: there is nothing to release"
            raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, set=digest)
        if before is not None and before.approved_at <= newest:
            _revoke(tx, caller, before, SUPERSEDED)
            before = None
    if before is not None:
        return before
    approval = approvals.insert(tx, digest, request.purpose, caller.name, reason)
    detail = {"set": digest, "purpose": request.purpose, "reason": reason}
    tx.audit("approval", approval.id, "added", actor_of(caller), detail=detail)
    return approval


def revoke(tx: Tx, caller: Caller, request: RevokeRequest) -> Approval:
    """Take an approval back: no probe that waits under it is claimed any more.

    Raises:
        ModelForgeError: INVALID_ARGUMENT without a reason; UNKNOWN_ID, AMBIGUOUS_ID; ILLEGAL_TRANSITION when it was
            revoked before.
    """
    reason = checked_reason(request.reason)
    approval = approvals.find(tx, request.id)
    if approval.revoked_at is not None:
        message = f"the approval {approval.id} was revoked by {approval.revoked_by} before"
        raise ModelForgeError(ErrorCode.ILLEGAL_TRANSITION, message)
    return _revoke(tx, caller, approval, reason)


def _revoke(tx: Tx, caller: Caller, approval: Approval, reason: str) -> Approval:
    revoked = approvals.revoke(tx, approval.id, caller.name, reason)
    detail = {"set": revoked.set_digest, "purpose": revoked.purpose, "reason": reason}
    tx.audit("approval", revoked.id, "revoked", actor_of(caller), detail=detail)
    return revoked
