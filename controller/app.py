"""One controller, wired: what it opens, which tasks it runs, and in which order it ends.

Starting, watching and stopping stand here and nowhere else. Everything is ready before the first request is served:
leases are extended before any may expire, streams exist before anything is published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from bus import ids, subjects
from bus.client import BusClient, Connection
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.lease_puller import LeasePuller
from bus.messages.jobs import AnyCommand
from bus.settings import APP, ClientSettings
from bus.states import ProbeState
from controller.admission import Admission
from controller.api import USER_HANDLERS
from controller.api_base import ApiContext, BusStatus
from controller.blobs import BlobStore
from controller.intake import Intake
from controller.inventory import InventoryIntake
from controller.lock import only_one
from controller.loops import Faults, Wake, keep
from controller.node_api import Handler, NodeApi
from controller.node_blobs import NodeBlobs
from controller.outbox import Outbox
from controller.progress import ProgressBoard
from controller.reconcile import Reconciler
from controller.service import ControllerService
from controller.settings import ControllerSettings
from controller.settle import Settler
from controller.store.connection import Store
from controller.store.tx import Tx
from controller.sweeps import Sweeper
from observability.counters import Counters
from observability.exporter import start_exporter
from observability.persistence import CounterStore
from observability.vitals import BusEvent, Loop, Vitals

LAST_DRAIN_S: Final = 2.0
_log: Final = logging.getLogger("controller.app")


@dataclass(slots=True)
class Opened:
    """What must be closed: made in this order, closed in the reverse one."""

    store: Store
    client: BusClient
    responder: BusClient
    puller: LeasePuller
    counter_store: CounterStore
    blobs: BlobStore


@dataclass(slots=True)
class _Numbers:
    """What the metrics endpoint reads from its own thread."""

    probes: Mapping[ProbeState, int] = field(default_factory=dict)


class Controller:
    """All parts of one controller process."""

    def __init__(self, settings: ControllerSettings, opened: Opened, counters: Counters) -> None:
        store, client = opened.store, opened.client
        self.settings = settings
        self.boot_id = ids.new_boot_id()
        self.started_at: datetime = ids.now()
        self.version = metadata.version(APP)
        self.metrics_url: str | None = None
        self.faults = Faults()
        self.counters = counters
        self._opened = opened
        self._numbers = _Numbers()
        self.settler = Settler(store, client, settings.sweep_interval_s)
        self.reconciler = Reconciler(
            store, client, self.settler, interval_s=settings.reconcile_interval_s, lease_ttl_s=settings.lease_ttl_s
        )
        self.outbox = Outbox(store, client, counters, self.reconciler.request)
        self.progress = ProgressBoard()
        self.sweeper = Sweeper(store, settings, opened.blobs)
        self.intake = Intake(
            store, client, opened.puller, counters, self.reconciler.request, self.faults, opened.blobs, self.progress
        )
        self.inventory = InventoryIntake(store, self.faults)
        self.admission = Admission(store, self.send_command, settings.prove_wait_s)
        self.service = ControllerService(
            opened.responder, self._handlers(), settings, counters, version=self.version, boot_id=self.boot_id
        )
        store.on_commit.append(self.outbox.wake)
        store.on_commit.append(self.settler.wake)

    def _handlers(self) -> dict[str, Handler]:
        opened = self._opened
        node_api = NodeApi(
            opened.store, opened.client, self.settings, self.admission, self.settler, self.reconciler, self.counters
        )
        context = ApiContext(
            store=opened.store,
            settings=self.settings,
            boot_id=self.boot_id,
            started_at=self.started_at,
            publish_command=self.hint,
            status=self.bus_status,
            blobs=opened.blobs,
            progress=self.progress,
        )
        node_blobs = NodeBlobs(opened.store, opened.blobs, self.progress)
        handlers: dict[str, Handler] = {**node_api.handlers(), **node_blobs.handlers()}
        for verb, handler in USER_HANDLERS.items():
            handlers[verb] = _bound(handler, context)
        return handlers

    async def send_command(self, node: str, command: AnyCommand) -> None:
        """Send a command to a node; nobody confirms it.

        Raises:
            ModelForgeError: NOT_CONNECTED, nothing was sent.
        """
        await self._opened.client.publish(subjects.command(node), encode(command))

    async def hint(self, node: str, command: AnyCommand) -> None:
        """Send a command that is only a hint: the renew reply repeats it, so what was committed stays a success."""
        try:
            await self.send_command(node, command)
        except ModelForgeError as error:
            _log.warning("a hint to %s was not sent: %s", node, error)

    def bus_status(self) -> BusStatus:
        """What the status reply says of the bus (spec D4)."""
        vitals = self.vitals()
        return BusStatus(
            streams={**self.reconciler.streams, **self.outbox.degraded()},
            metrics_url=self.metrics_url,
            faults={loop.value: count for loop, count in vitals.faults.items()},
            bus_events={event.value: count for event, count in vitals.bus_events.items()},
        )

    def vitals(self) -> Vitals:
        """What this process lived through; quick, and safe to call from the exporter's thread."""
        opened = self._opened
        return Vitals(
            faults=dict(self.faults.counts),
            bus_events={
                BusEvent.MALFORMED: opened.client.malformed + opened.responder.malformed,
                BusEvent.RETURNED: opened.puller.returned,
                BusEvent.REPEATED: opened.puller.repeated,
            },
        )

    async def prepare(self) -> None:
        """Everything that must be true before the first request: leases extended, streams there, ledger compared.

        Raises:
            ModelForgeError: what kept it from that.
        """
        extended = await self.sweeper.extend()
        if extended:
            _log.info("%d active leases were extended by one TTL", extended)
        for fault in await self.reconciler.run():
            # A single node's or job's: it must not keep the controller from starting, and is tried again soon.
            self.faults.record(Loop.RECONCILE, fault)
            self.reconciler.request()
        self.intake.request_reset()
        await self._opened.puller.start()
        await self._opened.client.subscribe(subjects.INVENTORY_ALL, self.inventory.on_message)

    def export(self, resources: AsyncExitStack) -> None:
        """Open the metrics endpoint. Without one the controller works on: observability never blocks (spec O4)."""
        try:
            exporter = start_exporter(
                self.counters,
                host=self.settings.metrics_host,
                port=self.settings.metrics_port,
                health=self._opened.counter_store.health,
                probe_counts=lambda: self._numbers.probes,
                vitals=self.vitals,
            )
        except ModelForgeError as error:
            _log.error("no metrics endpoint: %s", error)
            return
        resources.callback(exporter.close)
        self.metrics_url = exporter.url

    def tasks(self) -> dict[Loop, Callable[[], Awaitable[None]]]:
        """Every long-lived task, as the step that is repeated."""
        interval_s, counter_store = self.settings.counters_interval_s, self._opened.counter_store
        return {
            Loop.OUTBOX: self.outbox.step,
            Loop.SETTLE: self.settler.step,
            Loop.EVIDENCE: self.intake.step,
            Loop.EVIDENCE_RESET: self.intake.reset_step,
            Loop.RECONCILE: self.reconciler.step,
            Loop.SWEEP: self.sweeper.step,
            Loop.COUNTERS: lambda: counter_store.run(self.counters, interval_s),
            Loop.PROBE_COUNTS: self._count_probes,
        }

    async def _count_probes(self) -> None:
        self._numbers.probes = await self._opened.store.read(_probe_counts)
        await asyncio.sleep(self.settings.counters_interval_s)

    async def run(self, stop: asyncio.Event) -> None:
        """Run every task until `stop` is set, then end in order: requests, tasks, what waits in the outbox."""
        hurries = {name: Wake() for name in self.tasks()}

        def reconnected() -> None:
            self.reconciler.request()
            self.intake.request_reset()
            for hurry in hurries.values():
                hurry.set()

        unhook = self._opened.client.on_reconnect(reconnected)
        try:
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(keep(name, step, self.faults, hurry=hurries[name]), name=name)
                    for name, step in self.tasks().items()
                ]
                await stop.wait()
                _log.info("stopping: requests are finished first")
                await self.service.stop()
                for task in running:
                    task.cancel()
        finally:
            unhook()
        await self._last_drain()

    async def _last_drain(self) -> None:
        """What was committed in the last moment is published now if that is quick; else at the next start."""
        try:
            async with asyncio.timeout(LAST_DRAIN_S):
                await self.outbox.drain()
        except (ModelForgeError, TimeoutError) as error:
            _log.info("the outbox keeps what waits for the next start: %s", error)


async def serve(
    settings: ControllerSettings,
    client: ClientSettings,
    stop: asyncio.Event,
    on_ready: Callable[[Controller], None] | None = None,
) -> None:
    """Open, prepare, serve until `stop` is set, and close everything on every path.

    Raises:
        ModelForgeError: NOT_CONNECTED, AUTH_FAILED, STORE_UNAVAILABLE, STORE_SCHEMA_MISMATCH and what else keeps a
            controller from beginning. Once it serves, faults are its loops' own.
    """
    async with AsyncExitStack() as resources:
        opened = await _open(settings, client, resources)
        counters = Counters()
        controller = Controller(settings, opened, counters)
        await controller.prepare()
        controller.export(resources)
        await controller.service.start()
        _log.info(
            "controller %s serves, boot %s, metrics %s", controller.version, controller.boot_id, controller.metrics_url
        )
        if on_ready is not None:
            on_ready(controller)
        await controller.run(stop)
        _log.info("controller ended")


async def _open(settings: ControllerSettings, client: ClientSettings, resources: AsyncExitStack) -> Opened:
    _make_folder(settings.ledger.parent)
    resources.enter_context(only_one(settings.ledger.parent))
    store = await resources.enter_async_context(await Store.open(settings.ledger))
    counter_store = await CounterStore.open(settings.counters)
    blobs = BlobStore.of(settings)
    resources.callback(blobs.close)
    connections = []
    for name, credentials in (("controller", settings.credentials), ("responder", settings.responder_credentials)):
        connection = Connection(
            url=client.url, credentials=credentials, name=f"{APP} {name}", js_prefix=client.js_prefix
        )
        connected = await BusClient.connect(connection, wait_for_server_s=settings.connect_wait_s)
        resources.push_async_callback(_close, connected)
        connections.append(connected)
    puller = LeasePuller(connections[0], subjects.EVIDENCE_STREAM, subjects.EVIDENCE_CONSUMER)
    resources.push_async_callback(puller.stop)
    return Opened(store, connections[0], connections[1], puller, counter_store, blobs)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, f"{folder}: {error.strerror}") from error


async def _close(client: BusClient) -> None:
    """End a connection; one that is already broken is no reason to end badly."""
    try:
        await client.close()
    except (OSError, TimeoutError) as error:
        _log.info("a connection was closed after it broke: %s", error)


def _bound(handler: Callable[..., Awaitable[object]], context: ApiContext) -> Handler:
    return lambda caller, request: handler(context, caller, request)


def _probe_counts(tx: Tx) -> dict[ProbeState, int]:
    counted = {ProbeState(row["state"]): int(row["probes"]) for row in tx.all("reconcile.probe_counts")}
    return {state: counted.get(state, 0) for state in ProbeState}
