"""A real agent inside the test's own loop, against the scripted controller."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.registry import runtime_environment
from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import new_boot_id
from bus.messages.evidence import ScanFinished
from bus.messages.jobs import ProbeJob, ScanJob
from node_agent.agent import Agent
from node_agent.claims import Claims, Lease
from node_agent.controller_api import Boot, ControllerApi
from node_agent.hash_cache import HashCache
from node_agent.inventory import CachedEnvironment, Inventory
from node_agent.lane import ProbePort, ScanPort, WorkLane
from node_agent.measure.nvml import Discovery
from node_agent.reporter import Reporter
from node_agent.scan_host import ScanPlace
from node_agent.scan_run import ScanRunner
from tests.support.nats import NatsStack, nats_stack
from tests.support.scripted_controller import ScriptedController
from tests.support.waiting import until


def scan_place(root: Path, **fields: Any) -> ScanPlace:
    """A scan's place with ordinary bounds."""
    return ScanPlace(
        **{
            "root": root,
            "scratch": Path(tempfile.gettempdir()),
            "threads": 2,
            "memory_limit_bytes": 512 * 1024 * 1024,
            **fields,
        }
    )


class NoProbes:
    """For tests that run no probe."""

    async def run(self, job: ProbeJob, lease: Lease, reporter: Reporter) -> None:
        raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, "this test runs no probe")


@dataclass
class RunningAgent:
    """One life of an agent; `stop` ends it as SIGTERM would, `kill` as SIGKILL would."""

    boot: Boot
    claims: Claims
    inventory: Inventory
    task: asyncio.Task[None]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def stop(self) -> None:
        """Raises what the agent ended with."""
        self.stopping.set()
        await self.task


def start_agent(
    client: BusClient,
    root: Path,
    probes: Callable[[ControllerApi], ProbePort] | None = None,
    scans: ScanPort | None = None,
    *,
    cache: Path | None = None,
    scan: Mapping[str, Any] | None = None,
    node: str = "local",
    slots: int = 2,
    grace_s: float = 0.1,
    gpus: Callable[[], Discovery] = lambda: Discovery(reason="a test has no card"),
    scan_claimed: Callable[[], None] = lambda: None,
) -> RunningAgent:
    """Start an agent; the caller stops it. `scan` are fields of the place where its scans run."""
    boot = Boot(node, new_boot_id())
    api = ControllerApi(client, boot)
    claims = Claims(client, api)
    inventory = Inventory(
        boot,
        slots=slots,
        active=lambda: tuple(lease.active_job() for lease in claims.active.values()),
        environment=CachedEnvironment(runtime_environment),
        gpus=gpus,
    )
    runner = ScanRunner(api, scan_place(root, **(scan or {})), HashCache(cache) if cache is not None else None)
    lane = WorkLane(client, api, claims, scans or runner, probes(api) if probes is not None else NoProbes())
    lane.scan_claimed = scan_claimed
    agent = Agent(client, api, claims, lane, inventory)
    stopping = asyncio.Event()
    task = asyncio.create_task(agent.run(stopping, slots=slots, stop_grace_s=grace_s))
    return RunningAgent(boot, claims, inventory, task, stopping)


@dataclass
class AgentBench:
    """A server, a scripted controller, and agents on demand."""

    stack: NatsStack
    controller: ScriptedController
    root: Path
    _exit: AsyncExitStack

    async def agent(self, **options: Any) -> RunningAgent:
        """A running agent with a connection of its own, stopped at the end of the test."""
        client = await self.stack.connect("local")
        agent = start_agent(client, self.root, **options)
        self._exit.push_async_callback(_end, agent)
        return agent


async def _end(agent: RunningAgent) -> None:
    agent.stopping.set()
    await asyncio.wait((agent.task,))


@asynccontextmanager
async def agent_bench(tmp_path: Path, *, ttl_s: float = 2.0) -> AsyncIterator[AgentBench]:
    """Everything an agent needs around it; its artifact root is `tmp_path/artifacts`."""
    root = tmp_path / "artifacts"
    root.mkdir(exist_ok=True)
    async with nats_stack(tmp_path / "nats") as stack, AsyncExitStack() as exits:
        controller = ScriptedController(await stack.connect("controller"), "local", ttl_s=ttl_s)
        await controller.start()
        exits.push_async_callback(controller.stop)
        yield AgentBench(stack, controller, root, exits)


class Slow:
    """A scan that works until `release` is set, and keeps the leases it was given."""

    def __init__(self, *, report: bool = False) -> None:
        self.leases: list[Lease] = []
        self.release = asyncio.Event()
        self._report = report

    async def run(self, job: ScanJob, lease: Lease, reporter: Reporter) -> None:
        self.leases.append(lease)
        waits = [asyncio.ensure_future(event.wait()) for event in (self.release, lease.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._report:
            until_s = asyncio.get_running_loop().time() + 30
            await reporter.finish(ScanFinished(**reporter.head(), outcome="succeeded"), until_s=until_s)
        if lease.end is not None:
            raise lease.end

    async def begun(self) -> list[Lease]:
        await until(lambda: self.leases, "a job at work")
        return self.leases


async def silence(_: Any) -> Any:
    """A controller's handler that never answers."""
    await asyncio.Event().wait()
