"""A real nats-server with our accounts, and connections to it, for one test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bus.client import BusClient, Connection
from bus.streams import ensure_node_consumers, ensure_streams
from modelforge.keys import Identities, prepare_identities
from modelforge.nats_server import EmbeddedServer

OPERATOR = "alice"
VIEWER = "victor"


@dataclass(frozen=True, slots=True)
class NatsStack:
    """A running server and everybody's keys."""

    server: EmbeddedServer
    identities: Identities
    _exit: AsyncExitStack

    @property
    def url(self) -> str:
        return self.server.url

    def credentials(self, who: str) -> Path:
        """The seed file of "controller", "responder", "operator", "viewer", or a node by its name."""
        match who:
            case "controller":
                return self.identities.controller
            case "responder":
                return self.identities.responder
            case "operator":
                return self.identities.people[OPERATOR]
            case "viewer":
                return self.identities.people[VIEWER]
            case node:
                return self.identities.agents[node]

    def connection(self, who: str) -> Connection:
        return Connection(url=self.url, credentials=str(self.credentials(who)), name=f"test {who}")

    async def connect(self, who: str) -> BusClient:
        """A client that the stack closes at its end."""
        client = await BusClient.connect(self.connection(who))
        self._exit.push_async_callback(client.close)
        return client

    async def prepare(self, *, ack_wait_s: float = 30.0, slots: int = 2) -> BusClient:
        """Make all streams, and the consumers of every node; returns the controller's client that did it."""
        controller = await self.connect("controller")
        await ensure_streams(controller, {})
        for node in self.identities.agents:
            await ensure_node_consumers(controller, node, ack_wait_s=ack_wait_s, slots=slots)
        return controller


@asynccontextmanager
async def nats_stack(folder: Path, nodes: tuple[str, ...] = ("local",)) -> AsyncIterator[NatsStack]:
    """A server on a port of its own choice, its files below `folder`."""
    identities = prepare_identities(folder / "keys", user=OPERATOR, node_names=nodes, viewers=(VIEWER,))
    server = EmbeddedServer(folder / "server", port=0, users=identities.users, nodes=identities.nodes)
    server.start()
    try:
        async with AsyncExitStack() as exit_:
            yield NatsStack(server, identities, exit_)
    finally:
        await asyncio.to_thread(server.stop)
