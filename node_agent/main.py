"""The agent's process: settings, logging, signals, the connection, and the exit code."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from adapters.registry import runtime_environment, worth_warming
from bus.client import BusClient, Connection
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.ids import new_boot_id
from node_agent.agent import Agent
from node_agent.claims import Claims
from node_agent.controller_api import Boot, ControllerApi
from node_agent.hash_cache import HashCache
from node_agent.inventory import CachedEnvironment, Inventory
from node_agent.lane import WorkLane
from node_agent.measure import nvml
from node_agent.probe_run import ProbeRunner
from node_agent.scan_host import ScanPlace
from node_agent.scan_run import ScanRunner
from node_agent.scratch import own_scratch
from node_agent.settings import AgentSettings, load_settings
from node_agent.waiting import unless
from node_agent.warming import Warmer
from node_agent.worker import ChildFactory, WorkerSettings

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MIB: Final = 1024 * 1024
_log = logging.getLogger("node_agent")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one agent until SIGTERM or SIGINT; the exit code is the one of the error that ended it.

    4 says that another agent speaks for this node (BOOT_CONFLICT, BOOT_SUPERSEDED): starting again would not help.
    """
    parser = argparse.ArgumentParser(prog="node_agent", description="The agent of one ModelForge node.")
    parser.add_argument("--config", type=Path, required=True, help="TOML file with the sections [node] and [client]")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    try:
        asyncio.run(run(load_settings(options.config)))
    except ModelForgeError as error:
        return _ended_by(error)
    except Exception as defect:  # noqa: BLE001 -- the process's edge: the story into the log, a code outside
        _log.exception("a defect of the agent ended it")
        message = f"the agent ended with {type(defect).__name__}; its log says where"
        return _ended_by(ModelForgeError(ErrorCode.INTERNAL, message))
    return Exit.OK.value


def _ended_by(error: ModelForgeError) -> int:
    _log.critical("%s %s", error, f"-- {error.hint}" if error.hint else "")
    return error.info.exit.value


async def run(settings: AgentSettings) -> None:
    """Run one agent until a signal.

    Raises:
        ModelForgeError: AUTH_FAILED, BOOT_CONFLICT, BOOT_SUPERSEDED, PERMISSION_DENIED: nothing that waiting mends.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as exits:
        client = await unless(stop, connect(settings))
        if client is None:
            return
        exits.push_async_callback(client.close)
        node = settings.node
        scratch = exits.enter_context(own_scratch(settings.scratch))
        factory = ChildFactory(
            WorkerSettings(scratch=str(scratch), template_idle_s=node.template_idle_s, test_double=node.test_double)
        )
        exits.push_async_callback(factory.close)
        warmer = Warmer(factory, lambda: worth_warming(test_double=node.test_double))
        exits.push_async_callback(warmer.close)
        agent = assemble(settings, client, factory, scratch, warmer)
        await agent.run(stop, slots=node.slots, stop_grace_s=node.stop_grace_s)
        _log.info("stopped")


async def connect(settings: AgentSettings) -> BusClient:
    """A connection, however long the server is away.

    Raises:
        ModelForgeError: AUTH_FAILED.
    """
    client = settings.client
    connection = Connection(
        url=client.url,
        credentials=client.credentials,
        name=f"modelforge agent {settings.node.name}",
        js_prefix=client.js_prefix,
    )
    try:
        return await BusClient.connect(connection)
    except ModelForgeError as error:
        if error.code is not ErrorCode.NOT_CONNECTED:
            raise
        _log.warning("%s; waiting for it", error)
    return await BusClient.connect(connection, wait_for_server_s=math.inf)


def assemble(settings: AgentSettings, client: BusClient, factory: ChildFactory, scratch: Path, warmer: Warmer) -> Agent:
    """All parts of one life of the agent, wired."""
    node = settings.node
    boot = Boot(node.name, new_boot_id())
    api = ControllerApi(client, boot)
    claims = Claims(client, api)
    environment = CachedEnvironment(
        lambda: runtime_environment(test_double=node.test_double, given=settings.environment)
    )
    inventory = Inventory(
        boot,
        slots=node.slots,
        active=lambda: tuple(lease.active_job() for lease in claims.active.values()),
        environment=environment,
        gpus=nvml.discover,
    )
    place = ScanPlace(
        root=settings.artifact_root,
        scratch=scratch,
        threads=node.hash_threads,
        memory_limit_bytes=node.scan_memory_limit_mib * MIB,
    )
    scans = ScanRunner(api, place, HashCache(settings.cache) if settings.cache is not None else None)
    probes = ProbeRunner(
        factory,
        api=api,
        artifact_root=settings.artifact_root,
        scratch=scratch,
        hash_threads=node.hash_threads,
        cards=nvml.discover,
        environment=environment,
        test_double=node.test_double,
    )
    lane = WorkLane(client, api, claims, scans, probes)
    lane.scan_claimed = warmer.warm
    return Agent(client, api, claims, lane, inventory)
