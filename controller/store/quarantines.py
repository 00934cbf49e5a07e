"""Quarantined bytes: which they are, which sets have them, and what lets a set through (spec A4).

A quarantine counts for every set that has a member of these bytes. Which sets have which bytes is an index that grows
with each recorded set, and which sets are concerned is a table of its own, filled when bytes are quarantined and when a
set is recorded: neither a quarantine nor a read ever looks through a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from bus import ids
from bus.messages.artifacts import Manifest, Quarantine
from controller.store import approvals
from controller.store.rows import Row, optional_time, time_of
from controller.store.tx import Tx

# Sets that are named to the caller for each of the bytes; the quarantine counts for all.
MAX_NAMED_SETS: Final = 1_000


def of_sha256(tx: Tx, sha256: str) -> Quarantine | None:
    """The quarantine of these bytes, whatever set they lie in; `released_by` is of one set and left out."""
    row = tx.one("quarantines.by_sha256", sha256=sha256)
    return None if row is None else _quarantine(row, None)


def of_set(tx: Tx, digest: str) -> tuple[Quarantine, ...]:
    """Every quarantine that one of the set's members is under, oldest first, each with what released it for this set.

    A release is a valid approval of exactly this set for `quarantine_release` that is younger than the quarantine.
    """
    rows = tx.all("quarantines.of_set", set_digest=digest)
    if not rows:
        return ()
    release = approvals.valid(tx, digest, "quarantine_release")
    return tuple(
        _quarantine(row, release.id if release and release.approved_at > time_of(row["quarantined_at"]) else None)
        for row in rows
    )


def newest_of_set(tx: Tx, digest: str) -> datetime | None:
    """When the newest quarantine that concerns this set was made."""
    row = tx.one("quarantines.newest_of_set", set_digest=digest)
    return None if row is None else optional_time(row["at"])


def insert(
    tx: Tx, digest: str, members: Mapping[str, str], reasons: Mapping[str, str], actor: str
) -> tuple[tuple[Quarantine, ...], dict[str, list[str]]]:
    """Quarantine bytes that were not, and mark every set that has them: what was made, and which of it each set has.

    All sets are marked; for each of the bytes at most `MAX_NAMED_SETS` are named, `digest` among them.

    Args:
        tx: the transaction.
        digest: the set in which the bytes were found first.
        members: path in that set by SHA-256.
        reasons: why, by SHA-256.
        actor: who did it.
    """
    for sha256, path in members.items():
        tx.run(
            "quarantines.insert",
            id=ids.new_id(ids.QUARANTINE),
            sha256=sha256,
            set_digest=digest,
            path=path,
            reason=reasons[sha256],
            quarantined_by=actor,
            at=tx.at,
        )
    marked: dict[str, list[str]] = {}
    for sha256 in sorted(members):
        key = bytes.fromhex(sha256)
        tx.run("quarantines.mark_sets", sha256=sha256, key=key)
        for row in tx.all("quarantines.sets_with", key=key, first=digest, limit=MAX_NAMED_SETS):
            marked.setdefault(row["set_digest"], []).append(sha256)
    return tuple(found for sha256 in members if (found := of_sha256(tx, sha256)) is not None), marked


def mark(tx: Tx, digest: str, manifest: Manifest) -> None:
    """A new set: add its members to the index, and note which of them are quarantined already."""
    members = {file.sha256 for file in manifest.files}
    tx.run("quarantines.number_set", set_digest=digest)
    # One statement for all, in the order of the index.
    tx.run("quarantines.index_members", set_digest=digest, digests=bytes.fromhex("".join(sorted(members))))
    known = {row["sha256"] for row in tx.all("quarantines.digests")}
    for sha256 in known & members:
        tx.run("quarantines.mark", set_digest=digest, sha256=sha256)


def _quarantine(row: Row, released_by: str | None) -> Quarantine:
    return Quarantine(
        id=row["id"],
        sha256=row["sha256"],
        set_digest=row["set_digest"],
        path=row["path"],
        reason=row["reason"],
        quarantined_by=row["quarantined_by"],
        quarantined_at=time_of(row["quarantined_at"]),
        released_by=released_by,
    )
