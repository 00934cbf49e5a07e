"""What the node says about itself: on every change and at every interval, always the whole picture."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Final

from bus import subjects
from bus.client import BusClient
from bus.codec import encode
from bus.errors import ModelForgeError
from bus.ids import now
from bus.messages.inventory import ActiveJob, HardwareFacts, NodeInventory
from bus.messages.profiles import RuntimeEnvironment
from node_agent.controller_api import Boot
from node_agent.measure.nvml import Discovery
from node_agent.waiting import happened

CAPABILITIES: Final = ("artifact.scan.v1", "runtime.probe.v1")
# Two changes in one moment are one picture.
MIN_INTERVAL_S: Final = 0.05
PUBLISH_TIMEOUT_S: Final = 5.0
_CPU_MODEL: Final = re.compile(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", re.MULTILINE)
_MEMORY_KIB: Final = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", re.MULTILINE)
_log = logging.getLogger(__name__)


class CachedEnvironment:
    """The runtime environment, read again only when a folder of packages changed: reading it costs 0.1 s."""

    def __init__(self, read: Callable[[], RuntimeEnvironment]) -> None:
        self._read = read
        # One value, not two: threads ask at the same time, and an old environment must not get a new stamp.
        self._known: tuple[tuple[int, ...], RuntimeEnvironment] | None = None

    def __call__(self) -> RuntimeEnvironment:
        """The environment as it is now."""
        # Every installer adds or removes an entry of the folder, so the folder's own time changes.
        stamp = tuple(_changed_ns(Path(folder)) for folder in sys.path)
        known = self._known
        if known is None or stamp != known[0]:
            known = self._known = (stamp, self._read())
        return known[1]


class Inventory:
    """Takes and publishes the inventory of one life of the agent.

    Attributes:
        changed: set it, and a new picture goes out soon.
    """

    def __init__(
        self,
        boot: Boot,
        *,
        slots: int,
        active: Callable[[], tuple[ActiveJob, ...]],
        environment: Callable[[], RuntimeEnvironment],
        gpus: Callable[[], Discovery],
    ) -> None:
        """`environment` and `gpus` may block for a moment: they are called in a thread."""
        self.changed = asyncio.Event()
        self._boot = boot
        self._slots = slots
        self._active = active
        self._environment = environment
        self._gpus = gpus
        self._started_at = now()
        self._sequence = 0
        self._known: tuple[RuntimeEnvironment, HardwareFacts] | None = None

    async def take(self) -> NodeInventory:
        """The picture of this moment, with the next sequence number."""
        self._known = await asyncio.to_thread(self._facts)
        return self._picture(*self._known)

    def known(self) -> NodeInventory | None:
        """The picture with the facts that were read last, without reading them anew; `None` before the first `take`."""
        return self._picture(*self._known) if self._known is not None else None

    def _picture(self, environment: RuntimeEnvironment, hardware: HardwareFacts) -> NodeInventory:
        self._sequence += 1
        return NodeInventory(
            node=self._boot.node,
            boot_id=self._boot.id,
            sequence=self._sequence,
            at=now(),
            started_at=self._started_at,
            agent_version=metadata.version("modelforge"),
            capabilities=CAPABILITIES,
            environment=environment,
            hardware=hardware,
            slots=self._slots,
            active=self._active(),
        )

    async def publish_for_ever(self, client: BusClient, interval_s: float) -> None:
        """Publish now, then on every change and at least every `interval_s`; whatever goes wrong only costs a picture."""
        well = True
        while True:
            self.changed.clear()
            try:
                await self._publish(client)
            except ModelForgeError as error:
                if well:
                    _log.warning("the inventory was not stored: %s", error)
                well = False
            except Exception:  # noqa: BLE001 -- logged whole; an undescribed machine must not cost the probes on it
                if well:
                    _log.exception("a defect of the agent: no inventory could be taken")
                well = False
            else:
                well = True
            await asyncio.sleep(MIN_INTERVAL_S)
            await happened(self.changed, interval_s - MIN_INTERVAL_S)

    async def _publish(self, client: BusClient) -> None:
        await client.publish_stored(
            subjects.inventory(self._boot.node),
            encode(await self.take()),
            stream=subjects.INVENTORY_STREAM,
            timeout_s=PUBLISH_TIMEOUT_S,
        )

    def _facts(self) -> tuple[RuntimeEnvironment, HardwareFacts]:
        return self._environment(), hardware_facts(self._gpus())


def hardware_facts(gpus: Discovery) -> HardwareFacts:
    """The machine as this process may use it: its own CPUs, the kernel's memory figures, the given cards."""
    memory = {name: int(kib) * 1024 for name, kib in _MEMORY_KIB.findall(_read("/proc/meminfo"))}
    return HardwareFacts(
        cpu_model=cpu_model(_read("/proc/cpuinfo")),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_total_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        gpus=gpus.gpus,
        driver_version=gpus.driver_version,
        cuda_version=gpus.cuda_version,
        gpu_reason=gpus.reason,
    )


def cpu_model(cpuinfo: str) -> str:
    """The processor's name in the kernel's list; its architecture where the kernel names none."""
    found = _CPU_MODEL.search(cpuinfo)
    return found.group(1).strip() if found else platform.machine()


def _changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:  # an entry of the path need not exist
        return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        _log.warning("a fact about this machine cannot be read: %s", error)
        return ""
