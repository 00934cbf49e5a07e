"""What becomes of a message of evidence is what the table of errors says about the code that it ended in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from bus.client import BusClient
from bus.codec import encode
from bus.errors import CODES, AckAction, ErrorCode, ModelForgeError, Retry
from bus.lease_puller import Delivered, LeasePuller
from bus.messages.evidence import ProbePhase
from controller.blobs import BlobStore
from controller.intake import MAX_DELIVERIES, Intake
from controller.loops import Faults
from controller.progress import ProgressBoard
from controller.store.connection import Store
from observability.counters import Counters, Operation, Outcome
from observability.vitals import Loop
from tests.support.proven import AT, proven_marks

WORD = ProbePhase(
    node="local", boot_id="one", job_id="prb-0000000000", lease_id="lse-0000000000", attempt=1, sequence=1, at=AT,
    timeline=proven_marks(),
)  # fmt: skip
PRIMED = {
    AckAction.ACK: b"+ACK", AckAction.TERM: b"+TERM", AckAction.NAK: b"-NAK", AckAction.NONE: b"-NAK",
}  # fmt: skip


class Bench:
    """An intake whose ledger fails once, and the answer that it gave to the stream."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.answers: list[bytes] = []
        self.counters = Counters()
        self.faults = Faults()
        self.intake = Intake(
            cast("Store", self), cast("BusClient", self), cast("LeasePuller", None), self.counters, lambda: None,
            self.faults, cast("BlobStore", None), ProgressBoard(),
        )  # fmt: skip

    async def write(self, _change: Callable[[Any], Any]) -> Outcome:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return Outcome.SUCCEEDED

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        assert (subject, timeout_s > 0) == ("reply", True)
        self.answers.append(data)
        return b""


def delivered(times: int = 1, data: bytes | None = None) -> Delivered:
    return Delivered("mf.evidence.local", "reply", encode(WORD) if data is None else data, {}, times, 1)


async def take(bench: Bench, message: Delivered) -> bytes:
    """The one answer to the message, whatever the intake raises."""
    try:
        await bench.intake.take(message)
    except ModelForgeError as error:
        assert bench.answers[0].startswith(b"-NAK"), "only what is given back is a fault of the loop"
        pauses = error.info.retry is Retry.LATER
        assert pauses, "only an outage pauses the loop that reads for all nodes"
    [answer] = bench.answers
    return answer


@pytest.mark.req("D1")
@pytest.mark.parametrize("code", list(ErrorCode))
async def test_the_table_of_errors_decides(code: ErrorCode) -> None:
    answer = await take(Bench(ModelForgeError(code, "no")), delivered())
    assert answer.startswith(PRIMED[CODES[code].ack])


async def test_what_is_applied_is_acknowledged_and_counted() -> None:
    bench = Bench(None)
    assert await take(bench, delivered()) == b"+ACK"
    assert bench.counters.snapshot()[Operation.EVIDENCE, Outcome.SUCCEEDED] == 1


@pytest.mark.parametrize("data", [b"{", b'{"kind":"probe.phase.v9"}'])
async def test_what_cannot_be_read_is_ended(data: bytes) -> None:
    assert (await take(Bench(None), delivered(data=data))).startswith(b"+TERM")


@pytest.mark.parametrize("error", [KeyError("a defect"), ModelForgeError(ErrorCode.INTERNAL, "a defect")])
async def test_a_defect_is_tried_a_few_times_and_then_ended(error: Exception) -> None:
    bench = Bench(error)
    assert (await take(bench, delivered(MAX_DELIVERIES - 1))).startswith(b"-NAK")
    assert bench.faults.counts[Loop.EVIDENCE] == 1
    assert (await take(Bench(error), delivered(MAX_DELIVERIES))).startswith(b"+TERM INTERNAL")


@pytest.mark.req("D1")
@pytest.mark.parametrize("error", [ValueError("a surrogate"), OverflowError("a number without end")])
async def test_what_no_column_can_hold_is_ended_at_once(error: Exception) -> None:
    bench = Bench(error)
    assert (await take(bench, delivered(1))).startswith(b"+TERM MALFORMED_MESSAGE")
    assert bench.faults.counts[Loop.EVIDENCE] == 1


async def test_an_outage_is_waited_out_however_long() -> None:
    error = ModelForgeError(ErrorCode.STORE_UNAVAILABLE, "the disk is full")
    assert (await take(Bench(error), delivered(MAX_DELIVERIES * 10))).startswith(b"-NAK")
