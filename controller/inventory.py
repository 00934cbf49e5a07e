"""What nodes say about themselves, taken in as it is published (spec A18: facts are current, staleness is derived)."""

from __future__ import annotations

import logging
from typing import Final

from nats.aio.msg import Msg

from bus import subjects
from bus.codec import decode
from bus.messages.inventory import MAX_SLOTS, NodeInventory
from controller import boots, jobs
from controller.cleaning import cleaned
from controller.liveness import judge_inventory
from controller.loops import Faults
from controller.store.connection import Store
from controller.store.rows import optional_json
from controller.store.tx import Tx
from observability.vitals import Loop

# A superseded agent repeats itself every few seconds: each of its boots is audited once, not each of its words.
MAX_REMEMBERED_BOOTS: Final = 1_024
_log: Final = logging.getLogger("controller.inventory")


class InventoryIntake:
    """Keeps each node's newest inventory in the ledger."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self._told: set[tuple[str, str]] = set()

    async def on_message(self, message: Msg) -> None:
        """Take one inventory in. A bad one costs itself only."""
        try:
            node = subjects.parse_node(message.subject)
            inventory = cleaned(decode(message.data, NodeInventory))
            if inventory.node != node:
                _log.warning("an inventory on %s names the node %r", message.subject, inventory.node)
                return
            boot = (node, inventory.boot_id)
            first_refusal = boot not in self._told
            audited = await self._store.write(lambda tx: take(tx, inventory, audit_dead=first_refusal))
        except Exception as error:  # noqa: BLE001 -- a poisoned word is told and counted, the next one is heard
            self._faults.record(Loop.INVENTORY, error)
            return
        if audited:
            if len(self._told) >= MAX_REMEMBERED_BOOTS:
                self._told.clear()
            self._told.add(boot)


def usable_slots(said: int) -> int:
    """A node's word on its slots as the bound of its work lane: JetStream takes no other, and one node's is no fault."""
    return min(MAX_SLOTS, max(1, int(said)))


def take(tx: Tx, inventory: NodeInventory, *, audit_dead: bool) -> bool:
    """Store an inventory of the admitted boot, audited when it says something new about the node.

    Returns:
        Was the refusal of a superseded boot audited? A word that is merely late is no such thing: its boot may be
        superseded later, and that is then told.
    """
    row = tx.one("boots.node", node=inventory.node)
    stored = None if row is None else optional_json(row["inventory"], NodeInventory)
    dead = boots.is_dead(tx, inventory.node, inventory.boot_id)
    word = judge_inventory(stored, inventory, None if row is None else row["boot_id"], is_dead=dead)
    if word.accepted:
        boots.seen(tx, inventory)
        if word.changed:
            boots.tell(tx, inventory.node, "changed", detail={"boot": inventory.boot_id})
    elif dead and audit_dead:
        detail = {"boot": inventory.boot_id, "reason": word.reason}
        tx.audit("node", inventory.node, "inventory-refused", jobs.node_actor(inventory.node), detail=detail)
        return True
    return False
