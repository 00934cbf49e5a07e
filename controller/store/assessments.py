"""Assessments as they were made. What goes stale is derived by `controller.fingerprint`, never stored (spec A18)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import FileEntry, Manifest, SetEvidence
from bus.messages.gates import Assessment
from controller.store import resolve
from controller.store.rows import from_json, json_text
from controller.store.tx import Tx

PAGE: Final = 200


class _KeptEntry(FileEntry, frozen=True, kw_only=True, gc=False):
    """A member as the ledger holds it: it was checked when it was taken in, and 10,000 patterns cost 6 ms.

    It holds texts and a number, so it is part of no cycle: the collector, woken by 10,000 of them, need not walk them.
    """

    sha256: str


class _KeptManifest(Manifest, frozen=True, kw_only=True):
    files: tuple[_KeptEntry, ...]


def material(tx: Tx, digest: str) -> tuple[Manifest, SetEvidence]:
    """What an inspection reads of a set: its members, and what the scan read of their headers.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("sets.get", digest=digest)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no artifact set {digest}")
    return from_json(row["manifest"], _KeptManifest), from_json(row["evidence"], SetEvidence)


def find(tx: Tx, typed: str) -> Assessment:
    """The assessment that an operator means, as it was made.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    found = resolve.by_id(tx, "assessments.resolve", typed, ids.ASSESSMENT, "assessment")
    row = tx.one("assessments.get", id=found)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no assessment {found}")
    return from_json(row["body"], Assessment)


def newest_first(tx: Tx, limit: int) -> Iterator[Assessment]:
    """Assessments as they were made, newest first; they are read page by page, as far as somebody looks."""
    ids_ = [row["id"] for row in tx.all("assessments.newest", limit=limit)]
    for start in range(0, len(ids_), PAGE):
        for row in tx.all("assessments.bodies", ids=json_text(ids_[start : start + PAGE])):
            yield from_json(row["body"], Assessment)


def insert(tx: Tx, assessment: Assessment) -> None:
    """Store a new assessment."""
    tx.run(
        "assessments.insert",
        id=assessment.id,
        set_digest=assessment.set_digest,
        profile_id=assessment.profile_id,
        node=assessment.node,
        environment_id=assessment.environment_id,
        fingerprint=assessment.fingerprint,
        verdict=assessment.verdict,
        body=json_text(assessment),
        created_by=assessment.created_by,
        at=assessment.created_at,
    )
