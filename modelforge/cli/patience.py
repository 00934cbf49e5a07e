"""How a command that waits puts up with a controller that is away: bounded, and said once for each absence.

The work that is waited for goes on without the controller; a restart of it must not end the wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from bus.errors import ErrorCode, ModelForgeError
from modelforge.cli.output import Progress

T = TypeVar("T")
# Nothing was done: any request may be sent again.
NOT_SENT: Final = frozenset({ErrorCode.NOT_CONNECTED, ErrorCode.NO_CONTROLLER})
# The same, or nobody knows: only what may happen twice may be sent again.
AWAY: Final = NOT_SENT | {ErrorCode.REQUEST_TIMEOUT}
# A supervisor's restart of the controller, the server's recovery and one request's time limit together.
LIMIT_S: Final = 60.0
RETRY_S: Final = 0.5


class Patience:
    """One command's patience; it is whole again with each answer."""

    def __init__(self, progress: Progress, *, passing: frozenset[ErrorCode] = AWAY, limit_s: float = LIMIT_S) -> None:
        self._progress = progress
        self._passing = passing
        self._limit_s = limit_s
        self._since_s: float | None = None

    def bear(self, error: ModelForgeError) -> None:
        """Return when the request may be tried again.

        Raises:
            ModelForgeError: `error` itself, when it does not pass by itself or has lasted too long.
        """
        if error.code not in self._passing:
            raise error
        if self._since_s is None:
            self._since_s = time.monotonic()
            self._progress.aside(f"the controller does not answer ({error.code}); trying for {self._limit_s:g} s")
        elif time.monotonic() - self._since_s >= self._limit_s:
            raise error

    def answered(self) -> None:
        """The controller is there."""
        self._since_s = None


async def patiently(ask: Callable[[], Awaitable[T]], patience: Patience) -> T:
    """The first answer to `ask`.

    Raises:
        ModelForgeError: what the controller answered, or why it has not answered for too long.
    """
    while True:
        try:
            answer = await ask()
        except ModelForgeError as error:
            patience.bear(error)
            await asyncio.sleep(RETRY_S)  # the pace of asking; what ends it is an answer or the limit
        else:
            patience.answered()
            return answer
