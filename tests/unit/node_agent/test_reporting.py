"""What leaves the node: bounded, and without a place of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.codec import encode
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.ids import now
from bus.messages.evidence import ProbeFinished
from node_agent.attempt import fault_of
from node_agent.probe_run import whole_or_reason
from node_agent.reporter import MAX_EVIDENCE_BYTES, fitted
from node_agent.scrub import Scrub
from node_agent.waiting import Backoff, is_transient
from tests.support.proven import proven_evidence


def finished(log: str, dropped: int = 0) -> ProbeFinished:
    return ProbeFinished(
        node="local",
        boot_id="b",
        job_id="prb-0000000000",
        lease_id="lse-0000000000",
        attempt=1,
        sequence=1,
        at=now(),
        timeline=(),
        outcome="failed",
        evidence=None,
        log_ref="runtime-worker://local/prb-0000000000/attempt/1",
        log_text=log,
        log_dropped_bytes=dropped,
    )


@pytest.mark.parametrize("unit", ["x", "\n", '"\\', "\u00e4", "\U0001f600", "\x7f"])
@pytest.mark.req("P12")
def test_a_log_is_cut_at_its_beginning_until_the_message_fits(unit: str) -> None:
    log = unit * (MAX_EVIDENCE_BYTES // len(unit.encode())) + "the end"
    message = fitted(finished(log, dropped=5))
    assert len(encode(message)) <= MAX_EVIDENCE_BYTES
    assert message.log_text.endswith("the end")
    assert message.log_dropped_bytes == 5 + len(log.encode()) - len(message.log_text.encode())
    assert len(message.log_text) > len(log) // 4


def test_a_message_that_fits_is_left_alone() -> None:
    message = finished("short", dropped=3)
    assert fitted(message) is message


def test_a_message_that_cannot_fit_is_an_error() -> None:
    with pytest.raises(ModelForgeError) as caught:
        fitted(finished("text"), limit_bytes=10)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("outcome", "failure", "ends"),
    [
        ("completed", None, ("failed", "MESSAGE_TOO_LARGE")),
        ("failed", Failure(code="RUNTIME_CRASH", message="x"), ("failed", "RUNTIME_CRASH")),
        ("cancelled", Failure(code="CANCELLED", message="x"), ("cancelled", "CANCELLED")),
    ],
)
def test_evidence_that_cannot_fit_is_left_out_and_the_end_is_still_told(
    outcome: Any, failure: Failure | None, ends: tuple[str, str]
) -> None:
    """Unreported, the attempt would be tried again and again until none is left."""
    facts = {str(number): "x" * 1_000 for number in range(MAX_EVIDENCE_BYTES // 1_000)}
    evidence = msgspec.structs.replace(proven_evidence(), runtime_facts=facts)
    told = msgspec.structs.replace(finished("the log"), outcome=outcome, evidence=evidence, failure=failure)
    message = whole_or_reason(told)
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ends
    assert (message.evidence, message.log_text) == (None, "the log")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "/secret/place"), "No space left on device"),
        (KeyError("/secret/place"), "KeyError"),
    ],
)
def test_a_foreign_fault_is_logged_whole_and_told_by_its_class(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    fault = fault_of(error)
    assert fault.code is ErrorCode.NODE_FAULT
    assert words in fault.message
    assert "secret" not in fault.message
    assert "/secret/place" in caplog.text
    typed = ModelForgeError(ErrorCode.TIMEOUT, "x")
    assert fault_of(typed) is typed


@pytest.mark.req("P12", "B4")
def test_places_credentials_and_terminal_control_are_taken_out(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    scrub = Scrub({"artifacts": tmp_path / "link", "scratch": tmp_path / "scratch", "everything": Path("/")})
    text = scrub.text(
        f"open {root}/model/config.json\n{tmp_path}/link/x {tmp_path}/scratch/y {Path.home()}/z\ntoken=hunter2 \x1b[2J"
    )
    assert text == ("open <artifacts>/model/config.json\n<artifacts>/x <scratch>/y <home>/z\ntoken=[redacted] ")
    failure = scrub.failure(Failure(code="X", message=f"{root}: gone", context={"file": f"{root}/a\nb"}))
    assert failure == Failure(code="X", message="<artifacts>: gone", context={"file": "<artifacts>/a\u23ceb"})


def test_pauses_grow_to_their_limit_and_begin_again() -> None:
    backoff = Backoff(0.1, 1.0)
    pauses = [backoff.next_s() for _ in range(8)]
    assert 0.05 <= pauses[0] <= 0.1
    assert all(0.5 <= pause <= 1.0 for pause in pauses[4:])
    backoff.reset()
    assert backoff.next_s() <= 0.1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NO_CONTROLLER, True),
        (ErrorCode.NOT_CONNECTED, True),
        (ErrorCode.REQUEST_TIMEOUT, True),
        (ErrorCode.STORE_UNAVAILABLE, True),
        (ErrorCode.INTERNAL, True),
        (ErrorCode.LEASE_FENCED, False),
        (ErrorCode.PERMISSION_DENIED, False),
        (ErrorCode.BOOT_SUPERSEDED, False),
        (ErrorCode.BOOT_CONFLICT, False),
    ],
)
def test_only_troubles_that_pass_are_tried_again(code: ErrorCode, *, expected: bool) -> None:
    assert is_transient(ModelForgeError(code, "x")) is expected
