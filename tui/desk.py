"""What the screens may ask for, as a port; its one real form goes through `bus.operator` and `bus.feed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bus import verbs
from bus.feed import ProbeFeed
from bus.messages import api
from bus.messages.gates import ProbeView
from bus.operator import Operator
from bus.settings import ClientSettings
from bus.text import clean_line
from tui.model import Picture


class Desk(Protocol):
    """The controller, as the screens see it. Every method but `close` may raise `ModelForgeError`."""

    @property
    def context(self) -> str:
        """Who asks, and where: `ada @ nats://127.0.0.1:4222`."""

    async def watch(self, on_change: Callable[[Picture], None]) -> None:
        """Call `on_change` with every new picture; returns only when the feed has ended."""

    async def show(self, probe_id: str) -> ProbeView:
        """One probe with its evidence."""

    async def log(self, probe_id: str, attempt: int | None) -> api.LogView:
        """The bounded log of an attempt."""

    async def cancel(self, probe_id: str, reason: str) -> ProbeView:
        """Cancel a probe; an empty reason is recorded as none."""

    async def close(self) -> None:
        """Let go of the connection."""


class BusDesk:
    """The desk of one operator on the bus."""

    def __init__(self, operator: Operator, url: str) -> None:
        self._operator = operator
        self.context = clean_line(f"{operator.user} @ {url.rpartition('@')[2]}", 60)

    @classmethod
    async def connect(cls, settings: ClientSettings) -> BusDesk:
        """Connect, or fail at once and typed.

        Raises:
            ModelForgeError: NOT_CONNECTED, AUTH_FAILED.
        """
        return cls(await Operator.connect(settings), settings.url)

    async def watch(self, on_change: Callable[[Picture], None]) -> None:
        """See `Desk`."""
        await ProbeFeed(self._operator).run(on_change)

    async def show(self, probe_id: str) -> ProbeView:
        """See `Desk`."""
        return await self._operator.call(verbs.PROBES_SHOW, api.ById(id=probe_id))

    async def log(self, probe_id: str, attempt: int | None) -> api.LogView:
        """See `Desk`."""
        return await self._operator.call(verbs.PROBES_LOG, api.LogRequest(id=probe_id, attempt=attempt))

    async def cancel(self, probe_id: str, reason: str) -> ProbeView:
        """See `Desk`."""
        return await self._operator.call(verbs.PROBES_CANCEL, api.CancelRequest(id=probe_id, reason=reason))

    async def close(self) -> None:
        """See `Desk`."""
        await self._operator.close()
