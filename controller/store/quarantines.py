"""Quarantined bytes: which they are, which sets have them, and what lets a set through (spec A4).

A quarantine counts for every set that has a member of these bytes. Which sets those are stands in a table of its own,
filled when bytes are quarantined and when a set is recorded: a read never looks through a manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from bus import ids
from bus.messages.artifacts import Manifest, Quarantine
from controller.store import approvals
from controller.store.rows import Row, optional_time, time_of
from controller.store.tx import Tx

# Manifests in memory at once while the sets that have certain bytes are looked for.
MANIFESTS_A_PAGE: Final = 50
# A quotation mark inside a path is escaped in JSON, so this finds members' digests and nothing that a path says.
_MEMBER: Final = re.compile(r'"sha256":"([0-9a-f]{64})"')


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
    for other, manifest in _manifests(tx):
        for sha256 in sorted(members.keys() & set(_MEMBER.findall(manifest))):
            tx.run("quarantines.mark", set_digest=other, sha256=sha256)
            marked.setdefault(other, []).append(sha256)
    return tuple(found for sha256 in members if (found := of_sha256(tx, sha256)) is not None), marked


def mark(tx: Tx, digest: str, manifest: Manifest) -> None:
    """A new set: note which of its members are quarantined already."""
    known = {row["sha256"] for row in tx.all("quarantines.digests")}
    for sha256 in known & {file.sha256 for file in manifest.files}:
        tx.run("quarantines.mark", set_digest=digest, sha256=sha256)


def _manifests(tx: Tx) -> Iterator[tuple[str, str]]:
    after = ""
    while rows := tx.all("quarantines.manifests", after=after, limit=MANIFESTS_A_PAGE):
        for row in rows:
            yield row["digest"], row["manifest"]
        after = rows[-1]["digest"]


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
