"""The digests of a running scan on their way into the cache: kept while it runs, and however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from node_agent.artifact_root import Stamp
from node_agent.hash_cache import HashCache
from node_agent.waiting import end_tasks

# The file is written whole each time; an agent that dies has lost what was hashed in this time.
INTERVAL_S: Final = 10.0


class DigestKeeper:
    """An async context manager. `offer` returns at once; at the end all that was offered is in the cache.

    Without a cache nothing is kept.
    """

    def __init__(self, cache: HashCache | None, *, interval_s: float = INTERVAL_S) -> None:
        self._cache = cache
        self._interval_s = interval_s
        self._waiting: dict[Stamp, str] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._keep_for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            await end_tasks(self._task)
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        await self._keep()

    def offer(self, digests: Mapping[Stamp, str]) -> None:
        """These were computed just now."""
        if self._cache is not None:
            self._waiting |= digests
            self._wake.set()

    async def _keep_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._keep()
            await asyncio.sleep(self._interval_s)

    async def _keep(self) -> None:
        digests, self._waiting = self._waiting, {}
        if self._cache is not None and digests:
            # The thread goes on when this is cancelled, and the end waits for it.
            self._writing = asyncio.ensure_future(asyncio.to_thread(self._cache.remember, digests))
            await asyncio.shield(self._writing)
