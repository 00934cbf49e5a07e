"""Runtime environments: immutable, known by the digest of their contents, numbered as they were first seen (spec A8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.ids import NAME
from bus.messages.profiles import EnvironmentView, RuntimeEnvironment
from controller.store import resolve
from controller.store.rows import Row, from_json, json_text, time_of
from controller.store.tx import Tx

MAX_NODES: Final = 1_000


def find(tx: Tx, typed: str) -> EnvironmentView:
    """The environment that this node has now, or whose id begins so. A node's name goes first.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    row = tx.one("environments.of_node", name=typed) if NAME.match(typed) else None
    if row is None:
        return get(tx, resolve.by_digest(tx, "environments.resolve", typed, "environment"))
    if row["id"] is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"the node {typed} has sent no inventory yet")
    return get(tx, row["id"])


def get(tx: Tx, environment_id: str) -> EnvironmentView:
    """One environment by its whole id.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("environments.get", id=environment_id)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no environment {environment_id}")
    return _views(tx, [row])[0]


def list_environments(tx: Tx, limit: int) -> tuple[EnvironmentView, ...]:
    """Environments, the one seen last first."""
    return _views(tx, tx.all("environments.list", limit=limit))


def _views(tx: Tx, rows: Sequence[Row]) -> tuple[EnvironmentView, ...]:
    having: defaultdict[str, list[str]] = defaultdict(list)
    for row in tx.all("environments.nodes", ids=json_text([row["id"] for row in rows]), limit=MAX_NODES):
        having[row["environment_id"]].append(row["name"])
    return tuple(
        EnvironmentView(
            id=row["id"],
            version=row["version"],
            environment=from_json(row["body"], RuntimeEnvironment),
            first_seen_at=time_of(row["created_at"]),
            nodes=tuple(having[row["id"]]),
        )
        for row in rows
    )
