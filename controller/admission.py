"""`hello`: one life of an agent at a time speaks for its node (design section 4, "Generation and boots").

When another boot knocks, the admitted one is asked to say hello again. If it does, the stranger is refused; if it
is silent, it is dead for ever and its successor is admitted. Its leases run out by themselves: the process may be
cut off and still busy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.inventory import NodeInventory
from bus.messages.jobs import AnyCommand, ProveCommand
from controller import boots
from controller.liveness import Hello, decide_hello
from controller.store.connection import Store
from controller.store.tx import Tx

SendCommand = Callable[[str, AnyCommand], Awaitable[None]]


@dataclass(slots=True)
class _Contest:
    """An admitted boot that has to show that it lives."""

    boot_id: str
    proved: asyncio.Event = field(default_factory=asyncio.Event)


class Admission:
    """Decides who speaks for a node."""

    def __init__(self, store: Store, send_command: SendCommand, prove_wait_s: float) -> None:
        self._store = store
        self._send_command = send_command
        self._prove_wait_s = prove_wait_s
        self._contests: dict[str, _Contest] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def hello(self, inventory: NodeInventory) -> None:
        """Admit this boot, greet it again, or refuse it.

        Raises:
            ModelForgeError: BOOT_CONFLICT while the admitted boot lives or for a boot id of another node, BOOT_SUPERSEDED for a dead boot.
        """
        contest = self._contests.get(inventory.node)
        if contest is not None and contest.boot_id == inventory.boot_id:
            # Before the ledger is asked: the word counts from the moment at which it arrived.
            contest.proved.set()
        rival = await self._store.write(lambda tx: _admit(tx, inventory))
        if rival is not None:
            # One contest at a time for each node; the admitted boot's own hello never waits here.
            async with self._locks[inventory.node]:
                await self._contend(inventory)

    async def _contend(self, inventory: NodeInventory) -> None:
        rival = await self._store.write(lambda tx: _admit(tx, inventory))
        if rival is None:
            return
        contest = self._contests[inventory.node] = _Contest(rival)
        try:
            await self._send_command(inventory.node, ProveCommand(boot_id=rival))
            try:
                async with asyncio.timeout(self._prove_wait_s):
                    await contest.proved.wait()
            except TimeoutError:
                await self._store.write(lambda tx: _succeed(tx, inventory, contest))
                return
        finally:
            del self._contests[inventory.node]
        raise _conflict(inventory.node)


def _admit(tx: Tx, inventory: NodeInventory) -> str | None:
    """Admit or greet the boot; the boot id of the rival when there is another one that speaks for the node."""
    admitted = boots.admitted_boot(tx, inventory.node)
    if boots.is_of_another(tx, inventory.node, inventory.boot_id):
        raise ModelForgeError(ErrorCode.BOOT_CONFLICT, "this boot id speaks for another node")
    dead = boots.is_dead(tx, inventory.node, inventory.boot_id)
    match decide_hello(admitted, inventory.boot_id, is_dead=dead):
        case Hello.DEAD:
            raise ModelForgeError(ErrorCode.BOOT_SUPERSEDED, "a newer agent of this node was admitted")
        case Hello.CONTEST:
            return admitted
        case Hello.ADMIT:
            boots.admit(tx, inventory, None)
        case Hello.GREET:
            boots.seen(tx, inventory)
    return None


def _succeed(tx: Tx, inventory: NodeInventory, contest: _Contest) -> None:
    """The rival was silent: its successor speaks now, unless a word of it arrived in the last moment."""
    admitted = boots.admitted_boot(tx, inventory.node)
    if contest.proved.is_set() or admitted != contest.boot_id:
        raise _conflict(inventory.node)
    boots.admit(tx, inventory, contest.boot_id)


def _conflict(node: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.BOOT_CONFLICT, f"another live agent already speaks for the node {node}")
