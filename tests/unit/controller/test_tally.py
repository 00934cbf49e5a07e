"""Which jobs ended, read from the events."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bus.codec import encode
from bus.messages.events import Event
from controller.tally import ended
from observability.counters import Operation, Outcome


def event(what: str, **detail: str) -> bytes:
    at = datetime(2026, 11, 29, tzinfo=UTC)
    return encode(Event(sequence=1, at=at, entity="probe", id="prb-0123456789", what=what, actor="x", detail=detail))


@pytest.mark.req("O1")
@pytest.mark.parametrize(
    ("subject", "detail", "found"),
    [
        ("probe.prb-0123456789.completed", {}, (Operation.PROBE, Outcome.SUCCEEDED)),
        ("probe.prb-0123456789.failed", {"code": "GPU_OOM"}, (Operation.PROBE, Outcome.FAILED)),
        ("probe.prb-0123456789.failed", {"code": "DEADLINE_EXCEEDED"}, (Operation.PROBE, Outcome.EXPIRED)),
        ("probe.prb-0123456789.cancelled", {}, (Operation.PROBE, Outcome.CANCELLED)),
        ("probe.prb-0123456789.loading", {}, None),
        ("probe.prb-0123456789.cancel-requested", {}, None),
        ("scan.scn-0123456789.succeeded", {}, (Operation.SCAN, Outcome.SUCCEEDED)),
        ("scan.scn-0123456789.expired", {}, (Operation.SCAN, Outcome.EXPIRED)),
        ("scan.scn-0123456789.lease-expired", {}, None),
        ("node.local.offline", {}, None),
    ],
)
def test_an_end_is_counted_and_nothing_else(
    subject: str, detail: dict[str, str], found: tuple[Operation, Outcome] | None
) -> None:
    assert ended(f"mf.events.{subject}", event(subject.rsplit(".", 1)[-1], **detail)) == found
