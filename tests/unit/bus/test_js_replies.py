from __future__ import annotations

import json

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.js_replies import AlreadyQueued, JsError, read_ack, read_reply

JOB = "mf.jobs.local.work.prb-0000000000"


def fault(code: int, err_code: int, description: str) -> bytes:
    return json.dumps({"error": {"code": code, "err_code": err_code, "description": description}}).encode()


def test_an_acknowledgement_is_read() -> None:
    ack = read_ack(b'{"stream":"MF_JOBS","seq":7,"duplicate":true}', JOB, 1)
    assert (ack.stream, ack.sequence, ack.duplicate) == ("MF_JOBS", 7, True)


def test_a_job_that_is_there_already_is_an_outcome_of_its_own() -> None:
    with pytest.raises(AlreadyQueued):
        read_ack(fault(400, 10077, "maximum messages per subject exceeded"), JOB, 1)


@pytest.mark.parametrize(
    ("subject", "err_code", "description", "expected"),
    [
        ("mf.evidence.local", 10077, "maximum messages per subject exceeded", ErrorCode.QUEUE_FULL),
        (JOB, 10077, "maximum bytes exceeded", ErrorCode.QUEUE_FULL),
        (JOB, 10054, "message size exceeds maximum allowed", ErrorCode.MESSAGE_TOO_LARGE),
        (JOB, 10060, "expected stream does not match", ErrorCode.STREAM_DRIFT),
        (JOB, 10999, "something new", ErrorCode.INTERNAL),
    ],
)
def test_refusals_are_typed(subject: str, err_code: int, description: str, expected: ErrorCode) -> None:
    with pytest.raises(ModelForgeError) as raised:
        read_ack(fault(400, err_code, description), subject, 1)
    assert raised.value.code is expected


def test_an_error_keeps_jetstreams_codes() -> None:
    with pytest.raises(JsError) as raised:
        read_reply(fault(503, 10008, "JetStream system temporarily unavailable"))
    assert (raised.value.status, raised.value.err_code) == (503, 10008)
    assert raised.value.code is ErrorCode.NOT_CONNECTED


@pytest.mark.parametrize("reply", [b"", b"\xff", b"[1]", b"{"])
def test_a_reply_that_is_no_document_is_typed(reply: bytes) -> None:
    with pytest.raises(ModelForgeError) as raised:
        read_reply(reply)
    assert raised.value.code is ErrorCode.INTERNAL
