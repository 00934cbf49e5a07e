"""Messages on the wire: JSON, versioned kinds, typed refusals."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.jobs import AnyJob, ScanJob

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
JOB = ScanJob(job_id="scn-0123456789", node="local", path="model", max_files=10, deadline_at=NOW)


@pytest.mark.req("D1")
def test_a_job_survives_the_wire_and_reads_as_json() -> None:
    data = encode(JOB)
    decoded: AnyJob = decode(data, AnyJob)
    assert decoded == JOB
    assert json.loads(data)["kind"] == "scan.job.v1"
    assert json.loads(data)["deadline_at"] == "2026-11-29T12:00:00Z"


def test_a_field_of_a_newer_version_is_ignored() -> None:
    document = {**json.loads(encode(JOB)), "from_the_future": 1}
    assert decode(json.dumps(document).encode(), ScanJob) == JOB


def test_an_unknown_kind_has_a_code_of_its_own() -> None:
    with pytest.raises(ModelForgeError) as caught:
        decode(b'{"kind":"scan.job.v9","job_id":"x"}', AnyJob)
    assert caught.value.code is ErrorCode.UNKNOWN_KIND


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"kind":"scan.job.v1"}', b'{"kind":1}', b"[" * 100_000],
    ids=["empty", "cut", "not-utf8", "array", "null", "no-fields", "kind-is-a-number", "deep"],
)
def test_garbage_is_malformed_and_never_quoted(data: bytes) -> None:
    with pytest.raises(ModelForgeError) as caught:
        decode(data, AnyJob)
    assert caught.value.code in {ErrorCode.MALFORMED_MESSAGE, ErrorCode.UNKNOWN_KIND}


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    code: ErrorCode | None = None
    try:
        decode(data, AnyJob)
    except ModelForgeError as error:
        code = error.code
    assert code in {None, ErrorCode.MALFORMED_MESSAGE, ErrorCode.UNKNOWN_KIND}


@pytest.mark.req("D1")
def test_messages_are_frozen() -> None:
    with pytest.raises(AttributeError):
        JOB.path = "elsewhere"  # type: ignore[misc]
    assert msgspec.structs.replace(JOB, path="elsewhere").path == "elsewhere"


def test_a_time_without_a_zone_is_malformed() -> None:
    document = {**json.loads(encode(JOB)), "deadline_at": "2026-11-29T12:00:00"}
    with pytest.raises(ModelForgeError) as caught:
        decode(json.dumps(document).encode(), ScanJob)
    assert caught.value.code is ErrorCode.MALFORMED_MESSAGE
