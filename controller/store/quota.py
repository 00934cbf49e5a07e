"""How many refusals of one node are put on record: the trail is append-only, and a node must not be able to fill it.

What is above the quota is counted, and the count is put on record when the window is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

MAX_REFUSALS: Final = 20
WINDOW_S: Final = 60.0
MAX_WINDOWS: Final = 4_096

Key = tuple[str, str]  # the node, and what was refused


@dataclass(slots=True)
class _Window:
    since: datetime
    written: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Refusals of one window that have no line of their own."""

    node: str
    what: str
    count: int
    since: datetime


class Quota:
    """Counts per node and kind of refusal; used on the writer's thread alone. A restart begins anew."""

    def __init__(self, *, limit: int = MAX_REFUSALS, window_s: float = WINDOW_S) -> None:
        self._limit = limit
        self._window = timedelta(seconds=window_s)
        self._windows: dict[Key, _Window] = {}
        self._closed: list[LeftOut] = []

    def admit(self, node: str, what: str, at: datetime) -> bool:
        """May this refusal have a line of its own?"""
        key = (node, what)
        window = self._windows.get(key)
        if window is not None and at - window.since >= self._window:
            self._close(key)
            window = None
        if window is None:
            if len(self._windows) >= MAX_WINDOWS:
                self._close(next(iter(self._windows)))
            window = self._windows[key] = _Window(at)
        if window.written >= self._limit:
            window.left_out += 1
            return False
        window.written += 1
        return True

    def due(self, at: datetime) -> list[LeftOut]:
        """What was left out in windows that are over; each is given once."""
        for key in [key for key, window in self._windows.items() if at - window.since >= self._window]:
            self._close(key)
        found, self._closed = self._closed, []
        return found

    def _close(self, key: Key) -> None:
        window = self._windows.pop(key)
        if window.left_out:
            node, what = key
            self._closed.append(LeftOut(node=node, what=what, count=window.left_out, since=window.since))
