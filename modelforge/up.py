"""`modelforge up`: nats-server, controller and a local agent, in one terminal, on one state folder.

Order of a start: read and check every setting, look at the lock and the port, and only then write anything. The three
processes get a signal when this one dies, so that kill -9 leaves nothing behind; the kernel frees the lock.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import Nothing, Page
from bus.operator import Operator
from bus.settings import VARIABLES, ClientSettings
from modelforge.keys import Identities, prepare_identities
from modelforge.lifeline import exit_text
from modelforge.nats_server import EmbeddedServer
from modelforge.plan import Plan
from modelforge.settings import render_toml
from modelforge.state import StateLock, unwritable, write_private
from modelforge.supervisor import Part, ProcessPart, Supervisor

T = TypeVar("T")
_ASK_EVERY_S: Final = 0.1
_ASK_LIMIT_S: Final = 2.0


class ServerPart:
    """The embedded server as a part of the stack."""

    name = "nats-server"

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self.log_path = server.log_path

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._server.pid

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            ModelForgeError: PORT_IN_USE, SERVER_START_FAILED, DEPENDENCY_MISSING, STORE_UNAVAILABLE.
        """
        try:
            self._server.start()
        except OSError as error:
            raise unwritable(self.log_path.parent, error) from error

    async def ready(self) -> None:
        """`start` returned: it is."""

    async def stop(self, limit_s: float) -> None:  # noqa: ARG002 -- the server has a limit of its own
        """End it gracefully; in a thread, because it waits."""
        await asyncio.to_thread(self._server.stop)

    def kill(self) -> None:
        """End it at once."""
        self._server.kill()

    def ended(self) -> str:
        """How it ended, in words."""
        return exit_text(self._server.exit_code)


@dataclass(slots=True, kw_only=True)
class Stack:
    """The running stack.

    Attributes:
        client: how to reach it, as the operator.
        operator: a connection that stays for the stack's life.
    """

    plan: Plan
    server: EmbeddedServer
    identities: Identities
    tell: Callable[[str], None]
    client: ClientSettings = field(default_factory=ClientSettings)
    operator: Operator | None = None
    boots_before: frozenset[str] = frozenset()
    parts: list[Part] = field(default_factory=list)

    async def part_started(self, part: Part) -> None:
        """A part is ready: say so, and give the next one what it needs."""
        if part.name == ServerPart.name:
            self.client = self._client_settings()
            self._write_run_files()
            self.operator = await Operator.connect(self.client)
            self.tell(f"nats-server  ready   {self.server.url}, pid {part.pid}")
        else:
            word = "ready " if part.name == "controller" else "online"
            self.tell(f"{part.name:<11}  {word}  pid {part.pid}, log {part.log_path}")

    def _client_settings(self) -> ClientSettings:
        user = self.plan.up.user
        return ClientSettings(url=self.server.url, user=user, credentials=str(self.identities.people[user]))

    def _write_run_files(self) -> None:
        plan, url = self.plan, self.server.url
        run = plan.state.run
        write_private(run / "controller.toml", render_toml({"controller": plan.controller, "client": {"url": url}}))
        agent = {"url": url, "credentials": str(self.identities.agents[plan.node_name])}
        write_private(run / "node.toml", render_toml({"node": plan.node, "client": agent}))
        server = {"port": int(url.rpartition(":")[2]), "http_port": plan.server.http_port}
        # Nobody runs on this one: `modelforge config show` tells what flags made of the settings.
        write_private(run / "up.toml", render_toml({"server": server, "up": msgspec.structs.asdict(plan.up)}))

    async def controller_ready(self) -> None:
        """The controller answers; and note which boots of the node are history."""
        await self._ask_until(self._controller_answers)

    async def _controller_answers(self, operator: Operator) -> bool:
        await operator.call(verbs.STATUS, Nothing(), timeout_s=_ASK_LIMIT_S)
        nodes = (await operator.call(verbs.NODES_LIST, Page(), timeout_s=_ASK_LIMIT_S)).nodes
        self.boots_before = frozenset(node.boot_id for node in nodes if node.boot_id is not None)
        return True

    async def stream_states(self) -> dict[str, str]:
        """The controller's word on each stream.

        Raises:
            ModelForgeError: NOT_CONNECTED before the server is ready, NO_CONTROLLER, REQUEST_TIMEOUT.
        """
        if self.operator is None:
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, "the server is not ready")
        return (await self.operator.call(verbs.STATUS, Nothing(), timeout_s=_ASK_LIMIT_S)).streams

    def end_server(self) -> None:
        """Ask the server to end; the supervisor sees it and starts it again."""
        if self.server.pid is not None:
            os.kill(self.server.pid, signal.SIGTERM)

    async def agent_ready(self) -> None:
        """The node is online in this new life of its agent, not in the last one."""
        await self._ask_until(self._node_is_online)

    async def _node_is_online(self, operator: Operator) -> bool:
        nodes = (await operator.call(verbs.NODES_LIST, Page(), timeout_s=_ASK_LIMIT_S)).nodes
        return any(
            node.name == self.plan.node_name
            and node.liveness == "online"
            and node.inventory is not None
            and node.boot_id not in self.boots_before
            for node in nodes
        )

    async def _ask_until(self, question: Callable[[Operator], Awaitable[bool]]) -> None:
        """Ask until the answer is yes; the supervisor bounds the time and watches for the part's death."""
        if self.operator is None:
            message = "the stack was asked before its server was ready"
            raise ModelForgeError(ErrorCode.INTERNAL, message)
        while True:
            try:
                if await question(self.operator):
                    return
            except ModelForgeError as error:
                if error.code not in (ErrorCode.NO_CONTROLLER, ErrorCode.REQUEST_TIMEOUT, ErrorCode.NOT_CONNECTED):
                    raise
            await asyncio.sleep(_ASK_EVERY_S)


def process_variables() -> dict[str, str]:
    """Our environment without our own variables: the generated files say everything, an inherited one would win."""
    ours = {*VARIABLES, "MODELFORGE_CONFIG", "MODELFORGE_STATE"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def build_stack(plan: Plan, tell: Callable[[str], None]) -> tuple[Stack, Supervisor]:
    """Keys, server and the two processes of a plan; nothing runs yet.

    Raises:
        ModelForgeError: AUTH_FAILED for a damaged key, STORE_UNAVAILABLE.
    """
    state = plan.state
    try:
        if plan.make_artifact_root:
            plan.artifact_root.mkdir(parents=True, exist_ok=True)
        identities = prepare_identities(state.keys, user=plan.up.user, node_names=(plan.node_name,))
    except OSError as error:
        raise unwritable(state.root, error) from error
    server = EmbeddedServer(
        state.server,
        port=plan.server.port,
        http_port=plan.server.http_port,
        users=identities.users,
        nodes=identities.nodes,
    )
    stack = Stack(plan=plan, server=server, identities=identities, tell=tell)

    def process(name: str, module: str, file: str, ready: Callable[[], Awaitable[None]]) -> ProcessPart:
        return ProcessPart(
            name,
            [sys.executable, "-P", "-m", module, "--config", str(state.run / file)],
            log_path=state.logs / f"{name}.log",
            folder=state.root,
            variables=process_variables(),
            ready=ready,
        )

    stack.parts = [
        ServerPart(server),
        process("controller", "controller", "controller.toml", stack.controller_ready),
        process("agent", "node_agent", "node.toml", stack.agent_ready),
    ]
    supervisor = Supervisor(
        stack.parts,
        max_restarts=plan.up.max_restarts,
        window_s=plan.up.restart_window_s,
        ready_s=plan.up.ready_s,
        stop_s=plan.up.stop_s,
        tell=tell,
    )
    return stack, supervisor


@asynccontextmanager
async def running(plan: Plan, tell: Callable[[str], None]) -> AsyncIterator[tuple[Stack, Supervisor]]:
    """The stack of a plan, ready; stopped cleanly on the way out, whatever the way is.

    Raises:
        ModelForgeError: STATE_LOCKED, PORT_IN_USE, SERVER_START_FAILED, STORE_UNAVAILABLE.
    """
    plan.state.create()
    lock = StateLock(plan.state.lock)
    lock.acquire()
    try:
        plan.state.remove_endpoint()  # a killed stack leaves its address; what cannot be replaced is told before a start
        stack, supervisor = build_stack(plan, tell)
        try:
            await supervisor.start(stack.part_started)
            plan.state.write_endpoint(
                url=stack.client.url, user=stack.client.user, credentials=Path(stack.client.credentials)
            )
            yield stack, supervisor
        finally:
            await _stop(stack, supervisor)
    finally:
        lock.release()


async def _stop(stack: Stack, supervisor: Supervisor) -> None:
    """Take the address away first, then end the parts; a second signal kills instead of waiting."""
    stack.tell("stopping; Ctrl-C now ends everything at once")
    try:
        stack.plan.state.remove_endpoint()
    finally:
        stopping = asyncio.ensure_future(_stop_all(stack, supervisor))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            supervisor.kill()
            await stopping
            raise


async def _stop_all(stack: Stack, supervisor: Supervisor) -> None:
    try:
        if stack.operator is not None:
            await stack.operator.close()
    finally:
        await supervisor.stop()


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; SIGINT, SIGTERM and SIGHUP cancel it, so that its `finally` blocks stop what it started.

    Raises:
        ModelForgeError: INTERRUPTED after a signal.
    """

    async def body() -> T:
        task = asyncio.ensure_future(work)
        received: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            received.append(number)
            task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError as error:
            if not received:
                raise
            hint = "Start the same command again: what was recorded is kept, and open jobs go on."
            raise ModelForgeError(ErrorCode.INTERRUPTED, f"stopped by {received[0].name}", hint=hint) from error

    return asyncio.run(body())


async def alongside(supervisor: Supervisor, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, while the supervisor keeps the parts; a part that cannot be kept ends the work.

    Raises:
        ModelForgeError: SERVER_START_FAILED, or what `work` raises.
    """
    task = asyncio.ensure_future(work)
    keeping = asyncio.ensure_future(supervisor.run())
    try:
        await asyncio.wait({task, keeping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            keeping.result()
        return await task
    finally:
        for one in (task, keeping):
            one.cancel()
        await asyncio.gather(task, keeping, return_exceptions=True)
