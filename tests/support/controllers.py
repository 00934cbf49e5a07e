"""The real controller inside the test's own loop, over a real nats-server and a real ledger."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bus import subjects
from bus.client import BusClient
from bus.codec import decode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import AnyReply, Failed
from bus.settings import ClientSettings
from bus.streams import list_subjects
from controller.app import Controller, serve
from controller.settings import ControllerSettings
from controller.store.connection import Store
from controller.store.rows import Row
from tests.support.fake_agent import FakeAgent, compatible_set
from tests.support.nats import OPERATOR, NatsStack, nats_stack
from tests.support.waiting import until

QUICK: dict[str, Any] = {
    "lease_ttl_s": 30.0, "sweep_interval_s": 0.05, "reconcile_interval_s": 30.0, "prove_wait_s": 0.3,
    "stop_grace_s": 2.0, "counters_interval_s": 0.5,
}  # fmt: skip


@dataclass
class Bench:
    """A server, one controller at a time, an operator, and fake agents."""

    stack: NatsStack
    folder: Path
    settings: ControllerSettings
    client: BusClient  # with the controller's own key: it looks at streams
    operator: BusClient
    controller: Controller = field(init=False)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start a controller and wait until it serves."""
        ready: asyncio.Future[Controller] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        client = ClientSettings(url=self.stack.url)
        self._task = asyncio.create_task(serve(self.settings, client, self._stop, ready.set_result))
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task
        self.controller = await ready

    async def stop(self) -> None:
        """Stop it as SIGTERM would."""
        if self._task is not None:
            self._stop.set()
            await self._task
            self._task = None

    @property
    def store(self) -> Store:
        return self.controller._opened.store

    async def rows(self, query: str, **parameters: Any) -> list[Row]:
        return await self.store.read(lambda tx: tx.all(query, **parameters))

    async def row(self, query: str, **parameters: Any) -> Row:
        row = await self.store.read(lambda tx: tx.one(query, **parameters))
        assert row is not None, f"{query} {parameters} gives nothing"
        return row

    async def audits(self, entity_id: str) -> list[str]:
        """What happened to one thing, oldest first."""
        return [row["what"] for row in reversed(await self.rows("audit.list_of", id=entity_id, limit=1_000))]

    async def agent(self, node: str = "local", boot: str | None = None) -> FakeAgent:
        """A fake agent with a connection of its own; it has not said hello."""
        return FakeAgent(await self.stack.connect(node), node, boot)

    async def call(self, verb: str, **body: Any) -> dict[str, Any]:
        """Call a user verb with hand-written JSON."""
        subject = f"mf.api.user.{OPERATOR}.{verb}"
        return reply_data(await self.operator.request(subject, json.dumps(body).encode(), timeout_s=10.0))

    async def scan(self, path: str = "model", node: str = "local") -> str:
        reply = await self.call("artifacts.scan", node=node, path=path, request_id=secrets.token_hex(8))
        return str(reply["id"])

    async def assessed(self, agent: FakeAgent) -> str:
        """A scanned, profiled, assessed and approved set on the agent's node: the assessment's id."""
        await self.scan(node=agent.node)
        await agent.finish_scan(await agent.pull())

        async def recorded() -> list[dict[str, Any]]:
            sets: list[dict[str, Any]] = (await self.call("artifacts.list"))["sets"]
            return sets

        [found] = await until(recorded, "the set is recorded")
        assert found["digest"] == compatible_set().digest
        await self.call("profiles.create", profile={"name": "cpu-small"})
        assessment = await self.call(
            "assessments.create", set_digest=found["digest"], profile="cpu-small", node=agent.node
        )
        assert assessment["verdict"] == "compatible", assessment["findings"]
        await self.call("approvals.add", set_digest=found["digest"], purpose="lab_execution", reason="a test")
        return str(assessment["id"])

    async def queue(self, assessment_id: str) -> str:
        reply = await self.call("probes.queue", assessment_id=assessment_id, request_id=secrets.token_hex(8))
        return str(reply["id"])

    async def probe(self, probe_id: str) -> dict[str, Any]:
        return await self.call("probes.show", id=probe_id)

    async def queued_messages(self) -> list[str]:
        """The ids of the jobs whose message lies in the stream."""
        found = await list_subjects(self.client, subjects.JOBS_STREAM, subjects.JOBS_ALL)
        return sorted(subject.rsplit(".", 1)[-1] for subject in found)

    async def in_stream(self, *job_ids: str) -> None:
        """Wait until exactly these jobs lie in the stream."""

        async def there() -> bool:
            try:
                return await self.queued_messages() == sorted(job_ids)
            except ModelForgeError:
                return False  # the stream is being made again, or the server is on its way

        await until(there, f"MF_JOBS holds {job_ids}")

    async def wipe_and_restart_server(self) -> None:
        """Kill the server, remove JetStream's whole store, and start it again."""
        server = self.stack.server
        await asyncio.to_thread(server.kill)
        shutil.rmtree(self.folder / "nats" / "server" / "store")
        server.start()

    async def all_back(self, *clients: BusClient) -> None:
        """After the server came back: every connection stands, and the controller answers requests again."""

        async def answers() -> bool:
            try:
                return bool(await self.call("status"))
            except ModelForgeError as error:
                if error.code not in (ErrorCode.NOT_CONNECTED, ErrorCode.NO_CONTROLLER, ErrorCode.REQUEST_TIMEOUT):
                    raise
                return False

        await until(lambda: all(client.connected for client in (self.client, *clients)), "the connections are back")
        await until(answers, "the controller answers again")


def reply_data(data: bytes) -> dict[str, Any]:
    """The data of an `Ok`; raises the error of a `Failed`."""
    reply: AnyReply = decode(data, AnyReply)
    if isinstance(reply, Failed):
        raise ModelForgeError.from_failure(reply.failure)
    document: dict[str, Any] = json.loads(bytes(reply.data))
    return document


@asynccontextmanager
async def controller_bench(
    folder: Path, *, nodes: tuple[str, ...] = ("local",), **settings: Any
) -> AsyncIterator[Bench]:
    """A bench whose controller serves; `settings` override the quick ones."""
    async with nats_stack(folder / "nats", nodes) as stack:
        chosen = ControllerSettings(
            state=str(folder / "controller"),
            credentials=str(stack.credentials("controller")),
            responder_credentials=str(stack.credentials("responder")),
            **{**QUICK, **settings},
        )
        bench = Bench(stack, folder, chosen, await stack.connect("controller"), await stack.connect("operator"))
        await bench.start()
        try:
            yield bench
        finally:
            await bench.stop()
