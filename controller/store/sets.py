"""Artifact sets and the places where they were seen (spec A3, A5, G4)."""

from __future__ import annotations

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import ArtifactSet, Manifest, SetEvidence, SetLocation
from controller.store import expectations, quarantines, resolve
from controller.store.rows import Row, from_json, json_text, optional_time, time_of
from controller.store.tx import Tx

MAX_LOCATIONS = 1_000
# In a list of sets; a set by itself shows all.
MAX_SHOWN_QUARANTINES = 20


def find(tx: Tx, typed: str) -> str:
    """The digest that an operator means.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    return resolve.by_digest(tx, "sets.resolve", typed, "artifact set")


def get(tx: Tx, digest: str) -> ArtifactSet:
    """One set with manifest and evidence, by its whole digest.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("sets.get", digest=digest)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no artifact set {digest}")
    return ArtifactSet(
        digest=row["digest"],
        file_count=row["file_count"],
        size_bytes=row["size_bytes"],
        created_at=time_of(row["created_at"]),
        locations=locations(tx, digest),
        quarantined=quarantines.of_set(tx, digest),
        expectations=expectations.of_set(tx, digest),
        manifest=from_json(row["manifest"], Manifest),
        evidence=from_json(row["evidence"], SetEvidence),
    )


def list_sets(tx: Tx, limit: int) -> tuple[ArtifactSet, ...]:
    """Sets without manifest and evidence, newest first; of what is quarantined in one, the first few."""
    return tuple(_summary(tx, row) for row in tx.all("sets.list", limit=limit))


def manifest(tx: Tx, digest: str) -> Manifest:
    """The members of one set, by its whole digest.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("sets.manifest", digest=digest)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no artifact set {digest}")
    return from_json(row["manifest"], Manifest)


def evidence_text(tx: Tx, digest: str) -> str:
    """What the scan read of the set's headers and documents, canonical JSON as it is stored.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("sets.evidence", digest=digest)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no artifact set {digest}")
    text: str = row["evidence"]
    return text


def put(tx: Tx, digest: str, members: Manifest, evidence: SetEvidence) -> bool:
    """Store a set; was it new? A set that is known keeps its manifest and takes the newest reading of its headers."""
    if tx.one("sets.exists", digest=digest) is None:
        tx.run(
            "sets.insert",
            digest=digest,
            manifest=json_text(members),
            evidence=json_text(evidence),
            file_count=len(members.files),
            size_bytes=members.size_bytes,
            at=tx.at,
        )
        quarantines.mark(tx, digest, members)
        return True
    tx.run("sets.update_evidence", digest=digest, evidence=json_text(evidence))
    return False


def place(tx: Tx, *, node: str, path: str, digest: str, scan_id: str) -> str | None:
    """Record that the set lies at this place now; the digest that lay there before, if any."""
    before = at_place(tx, node, path)
    tx.run("sets.place", node=node, path=path, set_digest=digest, scan_id=scan_id, at=tx.at)
    return before


def locations(tx: Tx, digest: str) -> tuple[SetLocation, ...]:
    """Where the set lies, corrupt places too."""
    return tuple(_location(row) for row in tx.all("sets.locations", digest=digest, limit=MAX_LOCATIONS))


def place_on(tx: Tx, digest: str, node: str, path: str | None = None) -> SetLocation | None:
    """The set's place on this node: that at `path` if the set lies there, without a path one that is not corrupt first.

    A corrupt place is given where there is no better one: the caller has to look at its state (spec A5, P5).
    """
    if path is None:
        row = tx.one("sets.place_on", digest=digest, node=node)
    else:
        row = tx.one("sets.at_place", node=node, path=path)
        row = row if row is not None and row["set_digest"] == digest else None
    return None if row is None else _location(row)


def lies_at(tx: Tx, digest: str, node: str, path: str) -> bool:
    """Is this set what the newest word on the place says?"""
    return at_place(tx, node, path) == digest


def at_place(tx: Tx, node: str, path: str) -> str | None:
    """The digest of the set that the place holds on record, if any."""
    row = tx.one("sets.at_place", node=node, path=path)
    return None if row is None else row["set_digest"]


def lose(tx: Tx, node: str, path: str) -> str | None:
    """Take the place off the record; the digest of the set that lay there, if any."""
    before = at_place(tx, node, path)
    tx.run("sets.lose", node=node, path=path)
    return before


def corrupt(tx: Tx, node: str, path: str, *, file: str | None, problem: str, found_by: str) -> None:
    """Mark the place: a later read found other bytes there. It stays on record until a scan says better."""
    tx.run("sets.corrupt", node=node, path=path, file=file, problem=problem, found_by=found_by, at=tx.at)


def _location(row: Row) -> SetLocation:
    return SetLocation(
        node=row["node"],
        path=row["path"],
        scanned_at=time_of(row["scanned_at"]),
        state=row["state"],
        file=row["file"],
        problem=row["problem"],
        found_at=optional_time(row["found_at"]),
        found_by=row["found_by"],
    )


def _summary(tx: Tx, row: Row) -> ArtifactSet:
    return ArtifactSet(
        digest=row["digest"],
        file_count=row["file_count"],
        size_bytes=row["size_bytes"],
        created_at=time_of(row["created_at"]),
        locations=locations(tx, row["digest"]),
        quarantined=quarantines.of_set(tx, row["digest"])[:MAX_SHOWN_QUARANTINES],
        expectations=expectations.of_set(tx, row["digest"]),
    )
