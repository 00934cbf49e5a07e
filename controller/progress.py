"""How far the running scans are: kept in memory, a few numbers each, lost at a restart without harm."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from bus.messages.artifacts import ScanProgress

MAX_SCANS: Final = 1_000


class ProgressBoard:
    """The newest word on each scan; the scan that was silent for the longest makes room when the board is full."""

    def __init__(self, max_scans: int = MAX_SCANS) -> None:
        self._max_scans = max_scans
        self._found: OrderedDict[str, ScanProgress] = OrderedDict()

    def note(self, scan_id: str, progress: ScanProgress) -> None:
        """Keep this word in the place of the one before."""
        self._found[scan_id] = progress
        self._found.move_to_end(scan_id)
        while len(self._found) > self._max_scans:
            self._found.popitem(last=False)

    def of(self, scan_id: str) -> ScanProgress | None:
        """The newest word on this scan."""
        return self._found.get(scan_id)

    def drop(self, scan_id: str) -> None:
        """The scan has ended: there is nothing more to say."""
        self._found.pop(scan_id, None)
