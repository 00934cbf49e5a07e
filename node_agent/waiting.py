"""Bounded waits: for an event or a time, and the growing pause between two tries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Final, TypeVar

from bus.errors import ErrorCode, ModelForgeError, Retry
from bus.ids import now

T = TypeVar("T")
CANCEL_AGAIN_S: Final = 1.0
MAX_CANCELS: Final = 30
_log = logging.getLogger(__name__)


class Backoff:
    """Pauses that double up to a limit, with a random part so that a fleet does not knock in step."""

    def __init__(self, first_s: float, limit_s: float) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The pause before the next try: between half and the whole of the current step."""
        pause_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load, guards nothing
        self._next_s = min(self._limit_s, self._next_s * 2)
        return pause_s

    def reset(self) -> None:
        """Something worked: begin again with the shortest pause."""
        self._next_s = self._first_s


async def happened(event: asyncio.Event, within_s: float) -> bool:
    """Wait for `event`, at most `within_s`; was it set?"""
    try:
        async with asyncio.timeout(max(0.0, within_s)):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


def is_transient(error: ModelForgeError) -> bool:
    """May the same request succeed later, because the other side was away or in trouble?"""
    return error.info.retry is Retry.LATER or error.code in (ErrorCode.INTERNAL, ErrorCode.MALFORMED_MESSAGE)


def monotonic_deadline(at: datetime) -> float:
    """The moment `at` on the loop's monotonic clock: a wall clock that is set later changes nothing."""
    return asyncio.get_running_loop().time() + (at - now()).total_seconds()


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or `None` when `stop` was set first; `work` has ended in any case."""
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await end_tasks(task, stopping)


async def end_tasks(*tasks: asyncio.Future[Any], again_s: float = CANCEL_AGAIN_S) -> None:
    """Cancel `tasks` and wait until they have ended; what they ended with stays in them.

    One cancel is not enough: `asyncio.wait_for` of Python 3.11 keeps its result, or its error, when that comes in the
    same moment, and the cancel is lost. A task that goes on is cancelled again after `again_s`.
    """
    living = {task for task in tasks if not task.done()}
    for _ in range(MAX_CANCELS):
        if not living:
            return
        for task in living:
            task.cancel()
        _, living = await asyncio.wait(living, timeout=again_s)
    if living:
        _log.error("%d tasks did not end after %d cancels", len(living), MAX_CANCELS)
