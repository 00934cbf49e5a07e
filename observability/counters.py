"""Bounded operation/status counters (spec O1): what the controller did, and how it ended.

Both label sets are closed, so that no id, digest or error text can ever become a series. Counting is a side effect
of the work and may never hurt it: `Counters.count` neither raises nor waits.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Operation(StrEnum):
    """What was done; append-only, because dashboards and alert rules name these values."""

    SCAN = "scan"
    PROBE = "probe"
    CLAIM = "claim"
    RENEW = "renew"
    EVIDENCE = "evidence"
    API = "api"


class Outcome(StrEnum):
    """How it ended; append-only as above."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"  # a rule said no: not approved, fenced, wrong caller
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DUPLICATE = "duplicate"  # seen before, nothing changed
    RETRIED = "retried"  # given back, to be tried again


Series = tuple[Operation, Outcome]
Totals = Mapping[Series, int]
ALL_SERIES: Final[tuple[Series, ...]] = tuple((operation, outcome) for operation in Operation for outcome in Outcome)


class Counters:
    """Totals since the file was made: those restored at start plus those counted in this process.

    Safe to use from every thread. The lock is held for one addition only, never across I/O.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[Series, int] = dict.fromkeys(ALL_SERIES, 0)
        self._misuses = 0

    def count(self, operation: Operation, outcome: Outcome) -> None:
        """Add one. A value outside the two enums is counted as a misuse instead of raising into the caller's work."""
        with self._lock:
            try:
                self._totals[operation, outcome] += 1
            except (KeyError, TypeError):
                self._misuses += 1

    def restore(self, totals: Totals) -> None:
        """Add the totals of earlier lives of this process."""
        with self._lock:
            for series, total in totals.items():
                self._totals[series] += total

    def snapshot(self) -> dict[Series, int]:
        """A consistent copy; every series is there, those never counted with 0."""
        with self._lock:
            return dict(self._totals)

    @property
    def misuses(self) -> int:
        """How often `count` was given a value that is not in the enums: a defect of the caller."""
        with self._lock:
            return self._misuses
