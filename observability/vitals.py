"""What a controller lived through since it started: faults of its loops, troubles of its connections.

The label sets are closed and append-only, like those of the counters; the numbers are not persisted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Loop(StrEnum):
    """The long-lived tasks of the controller."""

    OUTBOX = "outbox"
    SETTLE = "settle"
    EVIDENCE = "evidence"
    EVIDENCE_RESET = "evidence-reset"
    RECONCILE = "reconcile"
    SWEEP = "sweep"
    COUNTERS = "counters"
    PROBE_COUNTS = "probe-counts"
    INVENTORY = "inventory"


class BusEvent(StrEnum):
    """Troubles that the connections get over by themselves."""

    MALFORMED = "malformed"  # a message that the client could not read, and dropped
    RETURNED = "returned"  # a delivery that nobody waited for any more, given back at once
    REPEATED = "repeated"  # a pull that was asked again: the server was silent, or the connection new


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """The numbers at one moment; what is absent is 0."""

    faults: Mapping[Loop, int] = field(default_factory=dict)
    bus_events: Mapping[BusEvent, int] = field(default_factory=dict)
