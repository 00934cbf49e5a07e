"""How the controller's long-lived tasks live: each has a name, each fault is logged and counted, none ends silently.

A poisoned message or a defect in one step costs that step and a pause, never the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from bus.errors import ModelForgeError, Retry
from observability.vitals import Loop

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
_log: Final = logging.getLogger("controller.loops")


class Wake:
    """A call that is never lost: it is remembered until somebody waits."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the one who waits, or let the next wait return at once."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a call, at most `timeout_s`; was there one?"""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Faults:
    """How often each loop failed: for the status reply, the metrics and the log."""

    def __init__(self) -> None:
        self.counts: dict[Loop, int] = dict.fromkeys(Loop, 0)

    def record(self, name: Loop, error: Exception) -> None:
        """Count a fault and say it: one line for an outage that mends itself, a traceback for a defect."""
        self.counts[name] += 1
        if isinstance(error, ModelForgeError) and error.info.retry is Retry.LATER:
            _log.warning("%s: %s (fault %d of this loop)", name, error, self.counts[name])
        else:
            _log.error("%s: unexpected fault %d of this loop", name, self.counts[name], exc_info=error)


async def keep(
    name: Loop, step: Callable[[], Awaitable[None]], faults: Faults, *, hurry: Wake | None = None,
    first_pause_s: float = FIRST_PAUSE_S,
) -> NoReturn:  # fmt: skip
    """Run `step` for ever; after a fault pause, at most `LONGEST_PAUSE_S`, doubling until a step succeeds.

    A step waits by itself for its next occasion. `hurry` cuts a pause short, for example after a reconnect.
    """
    pause_s = first_pause_s
    hurry = hurry or Wake()
    while True:
        try:
            await step()
        except Exception as error:  # noqa: BLE001 -- the one place that keeps a loop alive; the fault is told
            faults.record(name, error)
            hurried = await hurry.wait(pause_s)
            pause_s = first_pause_s if hurried else min(pause_s * 2, LONGEST_PAUSE_S)
        else:
            pause_s = first_pause_s
