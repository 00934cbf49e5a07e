"""Subjects are built and taken apart in one place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import subjects
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import NAME, SCAN, new_id
from bus.subjects import Lane

ACK = "$JS.ACK.MF_JOBS.local-work.2.71.9.1700000000000000000.0"


@given(st.from_regex(NAME, fullmatch=True), st.sampled_from(list(Lane)))
def test_a_job_subject_comes_back_as_it_went(node: str, lane: Lane) -> None:
    job_id = new_id(SCAN)
    address = subjects.parse_job(subjects.job(node, lane, job_id))
    assert (address.node, address.lane, address.job_id) == (node, lane, job_id)


@pytest.mark.parametrize(
    "subject",
    ["", "mf.jobs", "mf.jobs.A.work.scn-0123456789", "mf.jobs.a.play.scn-0123456789", "mf.jobs.a.work.x",
     "mf.jobs.a.work.scn-0123456789.more", "xx.jobs.a.work.scn-0123456789"],
)  # fmt: skip
def test_what_is_not_a_job_subject_is_refused(subject: str) -> None:
    with pytest.raises(ModelForgeError) as caught:
        subjects.parse_job(subject)
    assert caught.value.code is ErrorCode.MALFORMED_MESSAGE


@pytest.mark.parametrize("name", ["", "A", "1", "a.b", "a*", "a>", "a b", "a" * 25, "\u00fc", "a\n"])
def test_a_name_that_could_reach_further_is_refused(name: str) -> None:
    for build in (subjects.evidence, subjects.inventory, subjects.command):
        with pytest.raises(ModelForgeError) as caught:
            build(name)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_the_caller_is_in_the_subject() -> None:
    caller = subjects.parse_caller(subjects.user_api("ada", "probes.queue"))
    assert (caller.role, caller.name, caller.verb) == ("user", "ada", "probes.queue")
    with pytest.raises(ModelForgeError):
        subjects.parse_caller("mf.api.root.ada.probes.queue")


def test_both_forms_of_an_acknowledgement_are_read() -> None:
    first = subjects.parse_delivery("$JS.ACK.MF_JOBS.local-work.2.71.9.1700000000000000000.0")
    second = subjects.parse_delivery("$JS.ACK._.y68RJDuT.MF_JOBS.local-work.2.71.9.1700000000000000000.0")
    assert first == second
    assert (first.stream, first.consumer, first.num_delivered, first.stream_sequence) == (
        "MF_JOBS", "local-work", 2, 71,
    )  # fmt: skip


@pytest.mark.parametrize(
    "reply",
    [
        "", "_INBOX.x", "$JS.ACK.a.b", "$JS.ACK.S.c.x.1.1.1.0", "$JS.API.STREAM.DELETE.X",
        f"{ACK} x", f"{ACK}\r\nPUB a 1", f"{ACK}\n", f"{ACK}.>", f"{ACK}..", f"x{ACK}",
        ACK.replace("71", "\u0661"), ACK.replace("71", "7" * 30), ACK.replace("MF_JOBS", "*"),
        ACK.replace("local-work", ">"), ACK.replace("71", "-1"), f"{ACK}.1.2.3.4",
    ],
)  # fmt: skip
def test_another_reply_is_not_an_acknowledgement(reply: str) -> None:
    with pytest.raises(ModelForgeError):
        subjects.parse_delivery(reply)


def test_a_digest_is_one_token_of_an_event_subject() -> None:
    assert subjects.event("artifact_set", "sha256:ab", "recorded") == "mf.events.artifact_set.sha256-ab.recorded"
