"""Libraries imported ahead of need: a scan was claimed, so a probe will most likely follow.

The template imports while the operator reviews the set, and ends by its own idle time when no probe comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from node_agent.waiting import end_tasks
from node_agent.worker import ChildFactory

_log = logging.getLogger(__name__)


class Warmer:
    """Warms the templates of a factory; nothing that happens here ever reaches a job."""

    def __init__(self, factory: ChildFactory, adapters: Callable[[], tuple[str, ...]]) -> None:
        """`adapters` names those worth warming; it reads package metadata, so it is asked in a thread."""
        self._factory = factory
        self._adapters = adapters
        self._task: asyncio.Task[None] | None = None

    def warm(self) -> None:
        """Begin, unless it has begun already; returns at once."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._warm())

    async def close(self) -> None:
        """Give up what has not ended; call it before the factory is closed, which waits for a template that starts."""
        task, self._task = self._task, None
        if task is not None:
            await end_tasks(task)

    async def _warm(self) -> None:
        try:
            for adapter in await asyncio.to_thread(self._adapters):
                import_ms = await self._factory.warm(adapter)
                _log.info("a template of %s is ready; its imports took %.0f ms", adapter, import_ms)
        except Exception as error:  # noqa: BLE001 -- a probe meets the same trouble again, and reports it typed
            _log.warning("no template could be warmed ahead: %s", error)
