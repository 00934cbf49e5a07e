"""One life of a node's agent: hello, commands, the work lane, inventory, and the end. It only dials out (spec B2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from bus import subjects, verbs
from bus.client import BusClient
from bus.codec import decode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import HelloReply, HelloRequest
from bus.messages.jobs import AnyCommand, CancelCommand, ProveCommand
from node_agent.claims import Claims
from node_agent.controller_api import ControllerApi
from node_agent.inventory import Inventory
from node_agent.lane import WorkLane
from node_agent.waiting import Backoff, end_tasks, is_transient, unless

HELLO_TIMEOUT_S: Final = 10.0
# After one of these, this process does not speak for the node.
SUPERSEDED: Final = frozenset({ErrorCode.BOOT_CONFLICT, ErrorCode.BOOT_SUPERSEDED})
_log = logging.getLogger(__name__)


class Agent:
    """See the module. `run` is called once."""

    def __init__(
        self, client: BusClient, api: ControllerApi, claims: Claims, lane: WorkLane, inventory: Inventory
    ) -> None:
        self._client = client
        self._api = api
        self._claims = claims
        self._lane = lane
        self._inventory = inventory
        self._hello: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.learn = self._learn
        lane.changed = inventory.changed.set

    async def run(self, stop: asyncio.Event, *, slots: int, stop_grace_s: float) -> None:
        """Serve until `stop` is set; what runs then may end within the grace, and is ended after it.

        Raises:
            ModelForgeError: BOOT_CONFLICT or BOOT_SUPERSEDED when another agent speaks for this node; a permanent
                refusal of `hello`.
        """
        async with AsyncExitStack() as exits:
            commands = await self._client.subscribe(subjects.command(self._api.boot.node), self._command)
            exits.push_async_callback(self._unsubscribe, commands)
            rules = await unless(stop, self._say_hello())
            if rules is None:
                return
            _log.info("node %s is admitted as boot %s", self._api.boot.node, self._api.boot.id)
            puller = self._lane.puller()
            await puller.start()
            exits.push_async_callback(puller.stop)
            await self._serve(
                stop,
                (
                    self._lane.pull_for_ever(puller, slots=slots, ack_wait_s=rules.lease_ttl_s),
                    self._inventory.publish_for_ever(self._client, rules.inventory_interval_s),
                ),
                stop_grace_s,
            )

    async def _serve(
        self, stop: asyncio.Event, work: tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]], grace_s: float
    ) -> None:
        pulling, publishing = asyncio.create_task(work[0]), asyncio.create_task(work[1])
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((pulling, publishing, stopping, self._over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(pulling)
            await self._lane.end(0.0 if self._over.done() else grace_s)
            await end_tasks(publishing, stopping, *([self._hello] if self._hello else []))
        for reason in (pulling, publishing, self._over):
            if reason.done() and not reason.cancelled():
                reason.result()

    async def _say_hello(self, *, at_once: bool = False) -> HelloReply:
        """Ask for admission until the controller answers.

        Args:
            at_once: say what is known instead of reading the machine anew. Whoever asks for a proof of life waits two
                seconds, and a driver in trouble takes longer to name its cards.

        Raises:
            ModelForgeError: what it answered, when that will not change.
        """
        backoff = Backoff(0.2, 3.0)
        while True:
            try:
                known = self._inventory.known() if at_once else None
                request = HelloRequest(inventory=known or await self._inventory.take())
                return await self._api.call(verbs.HELLO, request, timeout_s=HELLO_TIMEOUT_S)
            except ModelForgeError as error:
                if not is_transient(error):
                    raise
                pause_s = backoff.next_s()
                _log.warning("hello was not answered, trying again in %.1f s: %s", pause_s, error)
                await asyncio.sleep(pause_s)

    async def _hello_again(self) -> None:
        try:
            await self._say_hello(at_once=True)
        except ModelForgeError as error:
            _log.warning("hello was refused: %s", error)
            self._learn(error)
        except Exception:  # noqa: BLE001 -- logged whole; the next question is another chance
            _log.exception("a defect of the agent: it could not say hello again")

    def _prove(self) -> None:
        """Say hello again, without holding up whoever asked for it; one at a time is enough."""
        if self._hello is None or self._hello.done():
            self._hello = asyncio.create_task(self._hello_again())

    def _learn(self, error: ModelForgeError) -> None:
        """What a refusal of the controller says about this process itself."""
        if error.code in SUPERSEDED and not self._over.done():
            self._over.set_exception(error)
        elif error.code is ErrorCode.NODE_UNKNOWN:
            # The ledger is a new one: it has never heard of this boot.
            self._prove()

    async def _command(self, message: Msg) -> None:
        """A hint from the controller; one that cannot be read is nothing, because the renewals repeat it."""
        try:
            command: AnyCommand = decode(message.data, AnyCommand)
        except ModelForgeError as error:
            _log.warning("a command could not be read: %s", error)
            return
        match command:
            case CancelCommand():
                lease = self._claims.active.get(command.job_id)
                if lease is not None:
                    lease.cancelled.set()
            case ProveCommand() if command.boot_id == self._api.boot.id:
                self._prove()

    async def _unsubscribe(self, subscription: Subscription) -> None:
        if self._client.connected:
            await subscription.unsubscribe()
