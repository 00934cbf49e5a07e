"""Which life of a node's agent speaks for it: the rows behind `hello` and inventory."""

from __future__ import annotations

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.inventory import NodeInventory
from controller.store import nodes
from controller.store.rows import json_text
from controller.store.tx import Tx


def admitted_boot(tx: Tx, node: str) -> str | None:
    """The boot that speaks for the node, if any was ever admitted."""
    row = tx.one("boots.node", node=node)
    return None if row is None else row["boot_id"]


def is_dead(tx: Tx, node: str, boot_id: str) -> bool:
    """Was this boot of the node replaced by a successor? What other nodes lived through says nothing of it."""
    return tx.one("boots.is_dead", node=node, boot_id=boot_id) is not None


def is_of_another(tx: Tx, node: str, boot_id: str) -> bool:
    """Does this boot speak for another node? Boot ids are random: such a one was taken from there."""
    return tx.one("boots.elsewhere", node=node, boot_id=boot_id) is not None


def require(tx: Tx, node: str, boot_id: str) -> None:
    """Pass if this boot speaks for the node.

    Raises:
        ModelForgeError: BOOT_SUPERSEDED for a dead boot, NODE_UNKNOWN when the node never said hello, BOOT_CONFLICT
            for a boot that was never admitted.
    """
    if is_dead(tx, node, boot_id):
        raise ModelForgeError(ErrorCode.BOOT_SUPERSEDED, "a newer agent of this node was admitted")
    admitted = admitted_boot(tx, node)
    if admitted is None:
        raise ModelForgeError(ErrorCode.NODE_UNKNOWN, f"the node {node} has not said hello")
    if admitted != boot_id:
        raise ModelForgeError(ErrorCode.BOOT_CONFLICT, "another agent speaks for this node")


def admit(tx: Tx, inventory: NodeInventory, replaces: str | None) -> None:
    """This boot speaks for the node from now on; the one that it replaces never again (design section 4)."""
    if replaces is not None:
        tx.run("boots.bury", boot_id=replaces, node=inventory.node, at=tx.at)
    tx.run("boots.admit", **_facts(tx, inventory))
    detail = {"boot": inventory.boot_id, "agent_version": inventory.agent_version, "replaces": replaces or ""}
    tell(tx, inventory.node, "admitted", detail=detail)


def seen(tx: Tx, inventory: NodeInventory) -> None:
    """Keep the newest inventory of the admitted boot."""
    tx.run("boots.seen", **_facts(tx, inventory))


def tell(tx: Tx, node: str, what: str, *, detail: dict[str, str] | None = None) -> None:
    """Audit a change of a node, with its picture."""
    tx.audit("node", node, what, f"node:{node}", detail=detail, node=nodes.view(tx, node))


def _facts(tx: Tx, inventory: NodeInventory) -> dict[str, object]:
    environment = inventory.environment
    digest = environment.digest()
    tx.run("boots.environment", id=digest, body=json_text(environment), at=tx.at)
    return {
        "node": inventory.node,
        "boot_id": inventory.boot_id,
        "at": tx.at,
        "environment_id": digest,
        "inventory": json_text(inventory),
    }
