"""Evidence that was fetched for chosen probes: lists carry none, so it is asked for once and kept while it is true."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from bus.messages.gates import ProbeView
from bus.states import PROBE

MAX_KEPT: Final = 64

Key = tuple[str, datetime]


class EvidenceCache:
    """Views with evidence, or why there is none, by probe and the moment of its last change."""

    def __init__(self) -> None:
        self._kept: dict[Key, ProbeView | str] = {}
        self._asked: Key | None = None

    def with_evidence(self, view: ProbeView) -> ProbeView:
        """The same probe with what is known of its evidence."""
        kept = self._kept.get(_key(view))
        return kept if view.evidence is None and isinstance(kept, ProbeView) else view

    def why_missing(self, view: ProbeView) -> str | None:
        """Why evidence that could be there is not; `None` when it is there, or cannot be."""
        if view.evidence is not None or not PROBE.is_terminal(view.state):
            return None
        kept = self._kept.get(_key(view), "asking the controller")
        return kept if isinstance(kept, str) else None

    def should_ask(self, view: ProbeView) -> bool:
        """Is it time to ask? True once for each state of a probe: painting comes by here several times a second."""
        key = _key(view)
        if view.evidence is not None or not PROBE.is_terminal(view.state) or key in self._kept or self._asked == key:
            return False
        self._asked = key
        return True

    def keep(self, view: ProbeView, answer: ProbeView | str) -> None:
        """Keep an answer; the oldest beyond the bound are forgotten."""
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[_key(view)] = answer
        self._asked = None

    def forget_refusals(self) -> None:
        """What could not be answered while the link was down may be asked anew."""
        self._kept = {key: kept for key, kept in self._kept.items() if not isinstance(kept, str)}


def _key(view: ProbeView) -> Key:
    return view.id, view.state_at
