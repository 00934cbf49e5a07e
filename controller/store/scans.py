"""Scans: jobs that hash a folder on a node."""

from __future__ import annotations

from bus import ids
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.artifacts import ScanView
from bus.states import JobState
from controller.store import resolve
from controller.store.rows import optional_json, optional_time, time_of
from controller.store.tx import Tx


def find(tx: Tx, typed: str) -> ScanView:
    """The scan that an operator means.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    return view(tx, resolve.by_id(tx, "scans.resolve", typed, ids.SCAN, "scan"))


def view(tx: Tx, scan_id: str) -> ScanView:
    """One scan by its whole id.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("scans.get", id=scan_id)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no scan {scan_id}")
    return ScanView(
        id=row["id"],
        node=row["node"],
        path=row["path"],
        state=JobState(row["state"]),
        queued_at=time_of(row["queued_at"]),
        attempt=row["attempt_count"],
        finished_at=optional_time(row["finished_at"]),
        set_digest=row["set_digest"],
        failure=optional_json(row["failure"], Failure),
        expected_sha256=row["source_sha256"],
    )


def insert(tx: Tx, scan_id: str, path: str) -> None:
    """Store a new scan; its job must be there."""
    tx.run("scans.insert", id=scan_id, path=path)


def set_result(tx: Tx, scan_id: str, set_digest: str) -> None:
    """Record what the scan found."""
    tx.run("scans.set_digest", id=scan_id, set_digest=set_digest)
