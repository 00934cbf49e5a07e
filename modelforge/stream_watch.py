"""A server that answers and stores nothing: `up` starts it again, a few times, because it does not recover by itself.

After a full disk nats-server refuses to store although there is room again; a restart mends it within a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from bus.errors import ModelForgeError
from modelforge.doctor_stack import DEGRADED

ASK_EVERY_S: Final = 10.0
# Twice in a row, so that one slow moment restarts nothing.
_IN_A_ROW: Final = 2
# In the whole life of one `up`: while the disk stays full, a restart mends nothing.
MAX_RESTARTS: Final = 3


class StreamWatch:
    """Looks at the streams' state and asks for a restart of the server when they stay degraded.

    Args:
        ask: the streams' states, as the controller reports them.
        restart: ends the server; the supervisor starts it again.
        tell: one line for the operator.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[Mapping[str, str]]],
        restart: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        self._ask = ask
        self._restart = restart
        self._tell = tell
        self._in_a_row = 0
        self._restarts = 0

    async def run(self) -> None:
        """Look until cancelled. A controller that does not answer is the supervisor's matter."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            try:
                streams = await self._ask()
            except ModelForgeError:
                self._in_a_row = 0
                continue
            self.look(streams)

    def look(self, streams: Mapping[str, str]) -> None:
        """Count one answer, and restart when it is due and still allowed."""
        degraded = sorted(name for name, how in streams.items() if how.startswith(DEGRADED))
        self._in_a_row = self._in_a_row + 1 if degraded else 0
        if self._in_a_row != _IN_A_ROW:
            return
        names = ", ".join(degraded)
        if self._restarts >= MAX_RESTARTS:
            self._tell(f"the server still stores nothing ({names}); make room on its disk, then start this again")
            return
        self._in_a_row = 0
        self._restarts += 1
        self._tell(f"the server stores nothing ({names}); restart {self._restarts} of {MAX_RESTARTS} of it")
        self._restart()
