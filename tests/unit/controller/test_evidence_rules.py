"""What a node's word is worth: the pure rules of evidence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bus.errors import ErrorCode, Failure
from bus.messages.evidence import PhaseMark, ProbeFinished, ProbePhase
from bus.states import JobEvent, JobState, LeaseState, ProbeEvent, ProbeState
from bus.subjects import Lane
from controller.evidence_rules import (
    Accept,
    Duplicate,
    Ending,
    Refusal,
    Steps,
    clean_failure,
    judge_probe_end,
    judge_sender,
    judge_timeline,
)
from controller.lease_rules import JobSnapshot, LeaseSnapshot
from tests.support.proven import proven_evidence

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
JOB = JobSnapshot(
    id="prb-0123456789", type="probe", node="local", lane=Lane.WORK, state=JobState.LEASED, attempt_count=1,
    max_attempts=3, cancel_requested=False, deadline_at=NOW + timedelta(hours=1),
)  # fmt: skip
LEASE = LeaseSnapshot(
    id="lse-0123456789", job_id=JOB.id, node="local", boot_id="one", attempt=1, token_sha256="0" * 64,
    state=LeaseState.ACTIVE, delivery="", last_sequence=3, expires_at=NOW + timedelta(seconds=30),
)  # fmt: skip
HEAD: dict[str, Any] = {
    "node": "local", "boot_id": "one", "job_id": JOB.id, "lease_id": LEASE.id, "attempt": 1, "sequence": 4, "at": NOW,
}  # fmt: skip
PHASE = ProbePhase(**HEAD, timeline=())
S = ProbeState
LIFE = (S.LOADING, S.HEALTHCHECKING, S.READY, S.UNLOADING)


def marks(*states: ProbeState, attempt: int = 1) -> tuple[PhaseMark, ...]:
    return tuple(PhaseMark(state=state, at=NOW, attempt=attempt) for state in states)


def finished(outcome: Any, **fields: Any) -> ProbeFinished:
    return ProbeFinished(**HEAD, timeline=marks(*LIFE), outcome=outcome, log_ref="", **{"evidence": None, **fields})


def judge(message: ProbePhase = PHASE, **changes: Any) -> Accept | Duplicate | Refusal:
    given: dict[str, Any] = {"node": "local", "job": JOB, "lease": LEASE, "dead": False, **changes}
    return judge_sender(message, given["node"], given["job"], given["lease"], boot_is_dead=given["dead"])


@pytest.mark.req("P4")
def test_the_holder_of_the_lease_is_heard() -> None:
    assert judge() == Accept(JOB, LEASE)


def test_a_lease_whose_time_is_over_still_counts_until_somebody_ended_it() -> None:
    late = replace(LEASE, expires_at=NOW - timedelta(hours=1))
    assert judge(lease=late) == Accept(JOB, late)


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_what_was_heard_before_is_a_duplicate(sequence: int) -> None:
    assert judge(msgspec.structs.replace(PHASE, sequence=sequence)) == Duplicate()


def test_a_repeat_of_the_last_word_is_a_duplicate_also_from_a_dead_boot() -> None:
    released = replace(LEASE, state=LeaseState.RELEASED)
    done = replace(JOB, state=JobState.SUCCEEDED)
    assert judge(lease=released, job=done, dead=True) == Duplicate()


@pytest.mark.req("P4", "B2")
@pytest.mark.parametrize(
    "changes",
    [
        {"node": "other"},
        {"job": None},
        {"lease": None},
        {"lease": replace(LEASE, node="other")},
        {"lease": replace(LEASE, job_id="prb-9999999999")},
        {"lease": replace(LEASE, boot_id="two")},
        {"lease": replace(LEASE, attempt=2)},
    ],
    ids=["subject", "no-job", "no-lease", "node", "job", "boot", "attempt"],
)
def test_a_stranger_is_refused(changes: dict[str, Any]) -> None:
    verdict = judge(**changes)
    assert isinstance(verdict, Refusal)
    assert verdict.code is ErrorCode.EVIDENCE_REFUSED


@pytest.mark.req("P4")
def test_a_late_word_is_refused() -> None:
    for state in (LeaseState.EXPIRED, LeaseState.FENCED):
        verdict = judge(lease=replace(LEASE, state=state))
        assert isinstance(verdict, Refusal)
        assert verdict.code is ErrorCode.LEASE_FENCED
    ended = judge(job=replace(JOB, state=JobState.EXPIRED), lease=replace(LEASE, state=LeaseState.FENCED))
    assert isinstance(ended, Refusal)
    assert ended.code is ErrorCode.JOB_TERMINAL
    dead = judge(dead=True)
    assert isinstance(dead, Refusal)
    assert dead.code is ErrorCode.BOOT_SUPERSEDED


@pytest.mark.req("P3")
def test_a_timeline_brings_every_phase_that_the_ledger_lacks() -> None:
    known = (*marks(S.QUEUED, attempt=0), *marks(S.PREPARING, S.LOADING))
    steps = judge_timeline(known, marks(*LIFE), S.LOADING, 1)
    assert steps == Steps(marks(*LIFE)[1:], S.UNLOADING)


def test_marks_of_an_earlier_attempt_do_not_count() -> None:
    known = (*marks(S.PREPARING, S.LOADING), *marks(S.PREPARING, attempt=2))
    assert judge_timeline(known, marks(S.LOADING, attempt=2), S.PREPARING, 2) == Steps(
        marks(S.LOADING, attempt=2), S.LOADING
    )


def test_the_claims_own_mark_may_be_repeated() -> None:
    steps = judge_timeline(marks(S.PREPARING), marks(S.PREPARING, S.LOADING), S.PREPARING, 1)
    assert steps == Steps(marks(S.LOADING), S.LOADING)


@pytest.mark.req("P3")
@pytest.mark.parametrize(
    ("known", "sent", "state"),
    [
        ((S.LOADING,), (), S.LOADING),
        ((S.LOADING,), (S.UNLOADING,), S.LOADING),
        ((), (S.READY,), S.PREPARING),
        ((), (S.LOADING, S.READY), S.PREPARING),
        ((), (S.COMPLETED,), S.PREPARING),
        ((S.UNLOADING,), (S.UNLOADING, S.LOADING), S.UNLOADING),
    ],
    ids=["shorter", "other-story", "jump", "gap", "terminal", "backwards"],
)
def test_a_story_that_the_table_forbids_is_refused(
    known: tuple[ProbeState, ...], sent: tuple[ProbeState, ...], state: ProbeState
) -> None:
    assert isinstance(judge_timeline(marks(*known), marks(*sent), state, 1), Refusal)


def test_a_timeline_of_another_attempt_is_refused() -> None:
    assert isinstance(judge_timeline((), marks(S.LOADING, attempt=2), S.PREPARING, 1), Refusal)


@pytest.mark.req("P3", "P13")
def test_a_proven_pass_completes() -> None:
    ending = judge_probe_end(finished("completed", evidence=proven_evidence()), S.UNLOADING, cancel_requested=False)
    assert ending == Ending(ProbeEvent.COMPLETE, JobEvent.SUCCEED, None)


def test_a_cancel_that_came_too_late_changes_nothing_but_is_noted() -> None:
    ending = judge_probe_end(finished("completed", evidence=proven_evidence()), S.UNLOADING, cancel_requested=True)
    assert isinstance(ending, Ending)
    assert ending.probe_event is ProbeEvent.COMPLETE
    assert ending.note


@pytest.mark.req("P10")
def test_a_cancel_is_a_cancel_only_when_somebody_asked_for_it() -> None:
    asked = judge_probe_end(finished("cancelled"), S.UNLOADING, cancel_requested=True)
    assert isinstance(asked, Ending)
    assert asked.probe_event is ProbeEvent.CANCEL
    unasked = judge_probe_end(finished("cancelled"), S.UNLOADING, cancel_requested=False)
    assert isinstance(unasked, Ending)
    assert unasked.probe_event is ProbeEvent.FAIL
    assert unasked.failure is not None
    assert unasked.failure.code == ErrorCode.NODE_FAULT


@pytest.mark.req("P3")
@pytest.mark.parametrize("state", [S.PREPARING, S.LOADING, S.HEALTHCHECKING, S.READY])
def test_no_end_without_unloading(state: ProbeState) -> None:
    assert isinstance(judge_probe_end(finished("failed"), state, cancel_requested=False), Refusal)


@pytest.mark.req("P8", "P11", "P13", "G5")
@pytest.mark.parametrize(
    ("changes", "path", "code"),
    [
        ({}, (S.UNLOADING,), ErrorCode.HEALTHCHECK_FAILED),
        ({"isolation": None}, LIFE, ErrorCode.HEALTHCHECK_FAILED),
        ({"output": None}, LIFE, ErrorCode.INVALID_OUTPUT),
        ({"reclaim": None}, LIFE, ErrorCode.HEALTHCHECK_FAILED),
    ],
    ids=["never-ready", "isolation", "output", "reclaim"],
)
def test_what_is_not_proven_is_not_passed(
    changes: dict[str, Any], path: tuple[ProbeState, ...], code: ErrorCode
) -> None:
    """The rule itself is proven in tests/unit/bus/test_proof.py; here: the controller asks it of every claim."""
    message = finished("completed", evidence=msgspec.structs.replace(proven_evidence(), **changes))
    ending = judge_probe_end(
        msgspec.structs.replace(message, timeline=marks(*path)), S.UNLOADING, cancel_requested=False
    )
    assert isinstance(ending, Ending)
    assert ending.probe_event is ProbeEvent.FAIL
    assert ending.job_event is JobEvent.FAIL
    assert ending.failure is not None
    assert ending.failure.code == code


@pytest.mark.req("G5")
def test_a_pass_without_any_evidence_fails() -> None:
    ending = judge_probe_end(finished("completed"), S.UNLOADING, cancel_requested=False)
    assert isinstance(ending, Ending)
    assert ending.probe_event is ProbeEvent.FAIL


@pytest.mark.req("P9", "P12")
def test_a_nodes_failure_is_cleaned_and_its_code_kept() -> None:
    dirty = Failure(
        code="FROM_THE_FUTURE",
        message="a\x1b[2Jb\ntoken=abc",
        context={"file": "x\x07", **{str(n): "" for n in range(50)}},
    )
    clean = clean_failure(dirty)
    assert clean.code == "FROM_THE_FUTURE"
    assert "\x1b" not in clean.message
    assert "\n" not in clean.message
    assert "abc" not in clean.message
    assert len(clean.context) <= 16
    assert clean_failure(Failure(code="not a code\n", message="")).code == ErrorCode.INTERNAL
