"""How far a scan is, told to the controller: the newest only, at most twice a second, and lost without harm."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from bus import verbs
from bus.errors import ModelForgeError
from bus.messages.artifacts import ScanProgress
from bus.messages.blobs import ProgressReport
from node_agent.claims import Lease
from node_agent.controller_api import ControllerApi
from node_agent.waiting import end_tasks

INTERVAL_S: Final = 0.5
TIMEOUT_S: Final = 2.0
_log = logging.getLogger(__name__)


class ProgressSender:
    """An async context manager. `offer` returns at once; what cannot be sent now is replaced by what comes next."""

    def __init__(self, api: ControllerApi, lease: Lease) -> None:
        self._api = api
        self._credentials = lease.credentials(api.boot.id)
        self._newest: ScanProgress | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send_for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            await end_tasks(self._task)

    def offer(self, progress: ScanProgress) -> None:
        """This is how far it is now."""
        self._newest = progress
        self._wake.set()

    async def _send_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            progress, self._newest = self._newest, None
            if progress is not None:
                await self._send(progress)
                await asyncio.sleep(INTERVAL_S)

    async def _send(self, progress: ScanProgress) -> None:
        report = ProgressReport(**self._credentials, progress=progress)
        try:
            await self._api.call(verbs.PROGRESS, report, timeout_s=TIMEOUT_S)
        except ModelForgeError as error:
            _log.debug("the progress of a scan was not heard: %s", error)
