"""The audit trail, read (spec G6); it is written by `Tx.audit` alone."""

from __future__ import annotations

from bus.messages.events import AuditEntry
from controller.store import resolve
from controller.store.rows import Row, from_json, time_of
from controller.store.tx import Tx


def list_entries(tx: Tx, limit: int, typed: str | None) -> tuple[AuditEntry, ...]:
    """Entries, newest first, of everything or of one thing.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    if typed is None:
        rows = tx.all("audit.list", limit=limit)
    else:
        rows = tx.all("audit.list_of", id=resolve.audited(tx, typed), limit=limit)
    return tuple(_entry(row) for row in rows)


def last_sequence(tx: Tx) -> int:
    """The number of the newest entry, 0 before the first."""
    row = tx.one("audit.last_sequence")
    return 0 if row is None else int(row["sequence"])


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(
        sequence=row["sequence"],
        at=time_of(row["at"]),
        entity=row["entity"],
        id=row["id"],
        what=row["what"],
        actor=row["actor"],
        detail=from_json(row["detail"], dict[str, str]),
    )
