"""Lists of digests from outside: which a scan has to equal, and which a set was found to equal (spec A3, G4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bus.messages.api import ExpectedManifest
from bus.messages.artifacts import Expectation
from controller.store.rows import from_json, json_text, time_of
from controller.store.tx import Tx

MAX_SHOWN: Final = 20


def require(tx: Tx, scan_id: str, expected: ExpectedManifest, entries: Mapping[str, str], required_by: str) -> None:
    """The scan has to find exactly these files: path -> 64 hex digits."""
    tx.run(
        "expectations.require",
        scan_id=scan_id,
        kind=expected.kind,
        source_sha256=expected.source_sha256,
        key=expected.key,
        entries=json_text(dict(entries)),
        required_by=required_by,
    )


def entries_of(tx: Tx, scan_id: str) -> tuple[dict[str, str], str] | None:
    """What the scan has to find, and the digest of the list's own file; `None` when nothing is required of it."""
    row = tx.one("expectations.of_scan", scan_id=scan_id)
    return None if row is None else (from_json(row["entries"], dict[str, str]), row["source_sha256"])


def last_list(tx: Tx, source_sha256: str, required_by: str) -> dict[str, str] | None:
    """The entries of the newest list that this user took from a file with this digest."""
    row = tx.one("expectations.last_list", source_sha256=source_sha256, required_by=required_by)
    return None if row is None else from_json(row["entries"], dict[str, str])


def meet(tx: Tx, scan_id: str, digest: str) -> bool:
    """The set equals what was required of the scan; was anything required?"""
    return tx.run("expectations.meet", scan_id=scan_id, set_digest=digest, at=tx.at) > 0


def of_set(tx: Tx, digest: str) -> tuple[Expectation, ...]:
    """The lists that the set was found to equal, the newest first."""
    return tuple(
        Expectation(
            kind=row["kind"],
            sha256=row["source_sha256"],
            key=row["key"],
            required_by=row["required_by"],
            scan_id=row["scan_id"],
            at=time_of(row["at"]),
        )
        for row in tx.all("expectations.of_set", set_digest=digest, limit=MAX_SHOWN)
    )
