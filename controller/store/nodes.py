"""Nodes as the ledger knows them. Their rows are written when an agent says hello or sends its inventory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bus.errors import ErrorCode, ModelForgeError
from bus.ids import NAME
from bus.messages.inventory import NodeInventory, NodeView
from bus.text import clean_line
from controller.liveness import classify
from controller.store.rows import Row, optional_json, optional_time
from controller.store.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Seconds after which a silent node is doubtful, and offline."""

    doubtful_after_s: float = 10.0
    offline_after_s: float = 15.0


USUAL_SILENCE = Silence()


def view(tx: Tx, name: str, silence: Silence = USUAL_SILENCE) -> NodeView:
    """One node by its exact name.

    Raises:
        ModelForgeError: NODE_UNKNOWN.
    """
    row = tx.one("nodes.get", name=name) if NAME.match(name) else None
    if row is None:
        raise ModelForgeError(ErrorCode.NODE_UNKNOWN, f"no node {clean_line(name, 100)!r} has ever said hello")
    return _view(row, tx.at, silence)


def list_views(tx: Tx, limit: int, silence: Silence = USUAL_SILENCE) -> tuple[NodeView, ...]:
    """All nodes by name, at most `limit`."""
    return tuple(_view(row, tx.at, silence) for row in tx.all("nodes.list", limit=limit))


def _view(row: Row, at: datetime, silence: Silence) -> NodeView:
    last_seen_at = optional_time(row["last_seen_at"])
    liveness = classify(
        last_seen_at, at, doubtful_after_s=silence.doubtful_after_s, offline_after_s=silence.offline_after_s
    )
    return NodeView(
        name=row["name"],
        enabled=bool(row["enabled"]),
        lab_eligible=bool(row["lab_eligible"]),
        liveness=liveness,
        boot_id=row["boot_id"],
        last_seen_at=last_seen_at,
        environment_id=row["environment_id"],
        inventory=optional_json(row["inventory"], NodeInventory),
    )
