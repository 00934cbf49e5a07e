"""A live picture of probes and nodes: a snapshot, and the events since (spec D3).

Events may be lost (core messages to a slow or disconnected reader), so they are never trusted alone: each carries the
number that follows the last one's, and a gap, a reconnect or an unreadable event asks for a new snapshot. So does the
time: a node's silence makes no event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, TypeVar

from nats.aio.msg import Msg

from bus import subjects, verbs
from bus.codec import decode
from bus.errors import ModelForgeError
from bus.ids import now
from bus.messages.api import Page, ProbePicture
from bus.messages.events import Event
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.operator import Operator

V = TypeVar("V")
_log = logging.getLogger(__name__)
REFRESH_S: Final = 5.0
# While the controller does not answer, and at the least between two snapshots.
RETRY_S: Final = 1.0
_PACE_S: Final = 0.1
_MAX_WAITING_EVENTS: Final = 1_000
_MAX_PROBES: Final = 500


@dataclass(frozen=True, slots=True)
class FeedState:
    """One picture; a new object for each change.

    Attributes:
        probes: by id, newest first.
        nodes: by name.
        sequence: the last event that is in the picture.
        connected: did the controller answer the last question, over a connection that still stands?
        as_of: when the picture was known to be true.
        last_error: why the feed is not connected.
    """

    probes: Mapping[str, ProbeView] = field(default_factory=lambda: MappingProxyType({}))
    nodes: Mapping[str, NodeView] = field(default_factory=lambda: MappingProxyType({}))
    sequence: int = 0
    connected: bool = False
    as_of: datetime = field(default_factory=now)
    last_error: str | None = None


def from_picture(picture: ProbePicture) -> FeedState:
    """The state that a snapshot shows."""
    return FeedState(
        probes=MappingProxyType({probe.id: probe for probe in picture.probes}),
        nodes=MappingProxyType({node.name: node for node in picture.nodes}),
        sequence=picture.as_of_sequence,
        connected=True,
        as_of=picture.at,
    )


def apply(state: FeedState, event: Event) -> FeedState | None:
    """The state after an event; the same object for an old event, `None` for a gap: ask for a new picture."""
    if event.sequence <= state.sequence:
        return state
    if event.sequence != state.sequence + 1:
        return None
    probes, nodes = state.probes, state.nodes
    if event.probe is not None:
        probes = _with(probes, event.probe.id, event.probe, _MAX_PROBES)
    if event.node is not None:
        nodes = _with(nodes, event.node.name, event.node, None)
    return replace(state, probes=probes, nodes=nodes, sequence=event.sequence, as_of=event.at)


def _with(things: Mapping[str, V], key: str, value: V, limit: int | None) -> Mapping[str, V]:
    """`things` with one replaced in its place, or put first when it is new; the oldest beyond `limit` are left out."""
    changed = {**things, key: value} if key in things else {key: value, **things}
    return MappingProxyType(dict(list(changed.items())[:limit]))


class ProbeFeed:
    """Keeps a `FeedState` true for as long as `run` runs."""

    def __init__(self, operator: Operator, *, refresh_s: float = REFRESH_S) -> None:
        self._operator = operator
        self._refresh_s = refresh_s
        self._state = FeedState()
        self._events: asyncio.Queue[Event] = asyncio.Queue(_MAX_WAITING_EVENTS)
        self._is_stale = True
        self._wake = asyncio.Event()
        self._not_before_s = 0.0

    async def run(self, on_change: Callable[[FeedState], None]) -> None:
        """Tell `on_change` every new picture, until cancelled. Losing server or controller does not end it.

        Raises:
            ModelForgeError: NOT_CONNECTED when there is no connection at the beginning.
        """
        client = self._operator.client
        # Subscribed before the first snapshot: what happens in between is in one of the two.
        subscription = await client.subscribe(subjects.EVENTS_ALL, self._receive)
        hooks = (client.on_reconnect(self._distrust), client.on_disconnect(self._lost(on_change)))
        try:
            while True:
                if self._is_stale:
                    await self._snapshot(on_change)
                self._apply_events(on_change)
                await self._wait()
        finally:
            for unhook in hooks:
                unhook()
            if client.connected:
                await subscription.unsubscribe()

    async def _snapshot(self, on_change: Callable[[FeedState], None]) -> None:
        clock = asyncio.get_running_loop()
        # A burst of gaps makes one snapshot, not many.
        await asyncio.sleep(max(0.0, self._not_before_s - clock.time()))
        self._not_before_s = clock.time() + _PACE_S
        self._is_stale = False
        try:
            picture = await self._operator.call(verbs.PROBES_LIST, Page())
        except ModelForgeError as error:
            self._show(replace(self._state, connected=False, last_error=str(error)), on_change)
        else:
            self._show(from_picture(picture), on_change)

    def _apply_events(self, on_change: Callable[[FeedState], None]) -> None:
        state = self._state
        while not self._events.empty():
            following = apply(state, self._events.get_nowait())
            if following is None:
                self._distrust()
                break
            state = following
        self._show(state, on_change)

    async def _wait(self) -> None:
        """Until something happens, or it is time to look again."""
        if self._is_stale:
            return
        try:
            async with asyncio.timeout(self._refresh_s if self._state.connected else min(RETRY_S, self._refresh_s)):
                await self._wake.wait()
        except TimeoutError:
            self._is_stale = True
        self._wake.clear()

    async def _receive(self, msg: Msg) -> None:
        try:
            self._events.put_nowait(decode(msg.data, Event))
        except (ModelForgeError, asyncio.QueueFull) as error:
            reason = error if isinstance(error, ModelForgeError) else "too many wait"
            _log.warning("an event was not taken (%s); the picture is asked for again", reason)
            self._is_stale = True
        self._wake.set()

    def _distrust(self) -> None:
        self._is_stale = True
        self._wake.set()

    def _lost(self, on_change: Callable[[FeedState], None]) -> Callable[[], None]:
        def lost() -> None:
            reason = self._operator.client.last_error
            message = f"the connection was lost: {reason}" if reason is not None else "the connection was lost"
            self._show(replace(self._state, connected=False, last_error=message), on_change)

        return lost

    def _show(self, state: FeedState, on_change: Callable[[FeedState], None]) -> None:
        if state is not self._state:
            self._state = state
            on_change(state)
