"""Quarantine: bytes that nothing may be done with, in every set that has them (spec A4, A5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import QuarantineRequest
from bus.messages.artifacts import Manifest, PickleFacts, Quarantine, SetEvidence
from bus.subjects import Caller
from bus.text import clean_line
from controller.gates.caller import MAX_REASON_CHARS, actor_of, checked_reason
from controller.gates.expectations import shown
from controller.store import quarantines, sets
from controller.store.tx import Tx

CONTROLLER: Final = "controller"
# More sets than these have the same bytes: the quarantine counts for all, and the trail names the first.
MAX_AUDITED_SETS: Final = 100
MAX_NAME_CHARS: Final = 200


def add(tx: Tx, caller: Caller, request: QuarantineRequest) -> Quarantine:
    """Quarantine the bytes of one member; bytes that are quarantined already keep their first reason.

    What rests on any set that has them is stale from this transaction on.

    Raises:
        ModelForgeError: INVALID_ARGUMENT without a reason; UNKNOWN_ID for a set or member that is not there;
            AMBIGUOUS_ID.
    """
    reason = checked_reason(request.reason)
    digest = sets.find(tx, request.set_digest)
    sha256 = next((file.sha256 for file in sets.manifest(tx, digest).files if file.path == request.path), None)
    if sha256 is None:
        message = f"the set has no member {clean_line(request.path, MAX_NAME_CHARS)!r}"
        raise ModelForgeError(
            ErrorCode.UNKNOWN_ID, message, hint=f"See its members: `modelforge artifact show {digest}`.", set=digest
        )
    before = next((one for one in quarantines.of_set(tx, digest) if one.sha256 == sha256), None)
    if before is not None:
        return before
    (made,) = _insert(tx, digest, {sha256: request.path}, {sha256: reason}, actor_of(caller))
    return made


def judge(tx: Tx, digest: str, manifest: Manifest, evidence: SetEvidence) -> tuple[Quarantine, ...]:
    """Quarantine what a scan found to be a pickle that runs code, unless these bytes are quarantined already."""
    digests = {file.path: file.sha256 for file in manifest.files}
    members: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for facts in _dangerous(evidence.pickles):
        sha256 = digests.get(facts.path)
        if sha256 is None or sha256 in members or quarantines.of_sha256(tx, sha256) is not None:
            continue
        members[sha256] = facts.path
        reasons[sha256] = _reason(facts)
    return _insert(tx, digest, members, reasons, CONTROLLER) if members else ()


def _dangerous(pickles: Iterable[PickleFacts]) -> Iterable[PickleFacts]:
    return (facts for facts in pickles if facts.verdict == "code")


def _reason(facts: PickleFacts) -> str:
    """Why, naming the import that decided it, or the first one where the reason names none."""
    named = f" (it imports {facts.imports[0]})" if facts.imports and facts.imports[0] not in facts.reason else ""
    return clean_line(f"a pickle that would run code: {facts.reason}{named}", MAX_REASON_CHARS)


def _insert(
    tx: Tx, digest: str, members: Mapping[str, str], reasons: Mapping[str, str], actor: str
) -> tuple[Quarantine, ...]:
    made, marked = quarantines.insert(tx, digest, members, reasons, actor)
    for one in made:
        detail = {"set": digest, "sha256": one.sha256, "path": one.path, "reason": one.reason}
        tx.audit("quarantine", one.id, "added", actor, detail=detail)
    # The set in which it was found comes first: it has its line however many others there are.
    for other in sorted(marked, key=lambda other: other != digest)[:MAX_AUDITED_SETS]:
        found = [one for one in made if one.sha256 in marked[other]]
        detail = {"quarantine": found[0].id, "found_as": shown([one.path for one in found]), "reason": found[0].reason}
        tx.audit("set", other, "quarantined", actor, detail=detail)
    return made
