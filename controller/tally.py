"""Which jobs ended, and how, read from the events that leave the outbox (spec O1, O6).

Every end of a job, whoever caused it, is one audit event, and the outbox publishes each: counted here, no path can
be forgotten, and the counters stay derived.
"""

from __future__ import annotations

from typing import Final

from bus.codec import decode
from bus.errors import ErrorCode
from bus.messages.events import Event
from bus.states import JobState, ProbeState
from observability.counters import Operation, Outcome

_PROBE: Final = {
    ProbeState.COMPLETED.value: Outcome.SUCCEEDED,
    ProbeState.FAILED.value: Outcome.FAILED,
    ProbeState.CANCELLED.value: Outcome.CANCELLED,
}
_SCAN: Final = {
    JobState.SUCCEEDED.value: Outcome.SUCCEEDED,
    JobState.FAILED.value: Outcome.FAILED,
    JobState.CANCELLED.value: Outcome.CANCELLED,
    JobState.EXPIRED.value: Outcome.EXPIRED,
}


def ended(subject: str, payload: bytes) -> tuple[Operation, Outcome] | None:
    """What an event's message says about the end of a job; `None` when it is about anything else."""
    match subject.split("."):
        case ["mf", "events", "probe", _, what] if what in _PROBE:
            # A probe has no state of its own for a missed deadline.
            late = decode(payload, Event).detail.get("code") == ErrorCode.DEADLINE_EXCEEDED
            return Operation.PROBE, Outcome.EXPIRED if late else _PROBE[what]
        case ["mf", "events", "scan", _, what] if what in _SCAN:
            return Operation.SCAN, _SCAN[what]
    return None
