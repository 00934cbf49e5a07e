"""How far estimates were from what probes then measured: one row for each completed probe that tells (spec A11)."""

from __future__ import annotations

from typing import Final, Literal

from bus.messages.evidence import MemorySource
from bus.messages.gates import Assessment, EstimateError
from bus.messages.profiles import ProfileView
from controller.store.rows import Row, json_text, time_of
from controller.store.tx import Tx

Scope = Literal["same set, profile and node", "same set and profile", "same adapter and node"]
# What an estimate may be compared with: it counts all that the process holds on the profile's device. An allocator
# knows only what it gave out itself.
COMPARABLE: Final[dict[Literal["cpu", "cuda"], frozenset[MemorySource]]] = {
    "cpu": frozenset({MemorySource.PROCESS_RSS}),
    "cuda": frozenset({MemorySource.NVML_PROCESS, MemorySource.DEVICE_DELTA}),
}
MAX_HISTORY: Final = 3
# A measured byte against an estimate of terabytes is a number that helps nobody.
MAX_ERROR_PERCENT: Final = 1_000_000


def insert(
    tx: Tx, probe_id: str, assessment: Assessment, *, estimated_bytes: int, measured_bytes: int, source: MemorySource
) -> None:
    """Keep what a probe's assessment estimated beside what the probe measured."""
    tx.run(
        "estimates.insert",
        probe_id=probe_id,
        set_digest=assessment.set_digest,
        profile_id=assessment.profile_id,
        node=assessment.node,
        adapter=assessment.adapter,
        estimated_bytes=estimated_bytes,
        measured_bytes=measured_bytes,
        source=source,
        at=tx.at,
    )


def history(tx: Tx, set_digest: str, profile: ProfileView, node: str) -> tuple[EstimateError, ...]:
    """Up to three errors of earlier estimates, the nearest relative first, among equals the newest.

    Near is the same set, profile and node; then the same set and profile; then the same adapter and node, measured on
    the same kind of device.
    """
    profile_id, adapter = profile.id, profile.profile.adapter
    sources = json_text(sorted(COMPARABLE[profile.profile.device]))
    asked = {"set_digest": set_digest, "profile_id": profile_id, "node": node}
    rows = tx.all("estimates.of_set_and_profile", **asked, limit=MAX_HISTORY)
    if len(rows) < MAX_HISTORY:
        rows += tx.all("estimates.of_adapter", **asked, adapter=adapter, sources=sources, limit=MAX_HISTORY - len(rows))
    return tuple(_error(row, set_digest, profile_id, node) for row in rows)


def error_percent(estimated_bytes: int, measured_bytes: int) -> int:
    """(estimated - measured) / measured in whole percent; positive when too much was estimated."""
    percent = round((estimated_bytes - measured_bytes) * 100 / measured_bytes)
    return max(-MAX_ERROR_PERCENT, min(MAX_ERROR_PERCENT, percent))


def _error(row: Row, set_digest: str, profile_id: str, node: str) -> EstimateError:
    return EstimateError(
        probe_id=row["probe_id"],
        node=row["node"],
        scope=_scope(row, set_digest, profile_id, node),
        estimated_bytes=row["estimated_bytes"],
        measured_bytes=row["measured_bytes"],
        source=MemorySource(row["source"]),
        error_percent=error_percent(row["estimated_bytes"], row["measured_bytes"]),
        at=time_of(row["at"]),
    )


def _scope(row: Row, set_digest: str, profile_id: str, node: str) -> Scope:
    if (row["set_digest"], row["profile_id"]) != (set_digest, profile_id):
        return "same adapter and node"
    return "same set, profile and node" if row["node"] == node else "same set and profile"
