"""Who may work on a job: the pure rules of a lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.states import JobState, LeaseState
from bus.subjects import Lane
from controller.lease_rules import (
    AlreadyYours,
    Ended,
    GiveUp,
    Grant,
    JobSnapshot,
    LeaseSnapshot,
    Wait,
    check_delivery,
    decide_claim,
    decide_renew,
    extended,
    token_hash,
)

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
DELIVERY = "$JS.ACK.MF_JOBS.local-work.1.7.7.1764417600000000000.0"
TOKEN = ids.new_token()
JOB = JobSnapshot(
    id="prb-0123456789", type="probe", node="local", lane=Lane.WORK, state=JobState.QUEUED, attempt_count=0,
    max_attempts=3, cancel_requested=False, deadline_at=NOW + timedelta(hours=1),
)  # fmt: skip
LEASED = replace(JOB, state=JobState.LEASED, attempt_count=1)
LEASE = LeaseSnapshot(
    id="lse-0123456789", job_id=JOB.id, node="local", boot_id="one", attempt=1, token_sha256=token_hash(TOKEN),
    state=LeaseState.ACTIVE, delivery=DELIVERY, last_sequence=0,
    expires_at=NOW + timedelta(seconds=25),
)  # fmt: skip
OVER = replace(LEASE, expires_at=NOW)


@pytest.mark.req("P4")
def test_a_queued_job_is_granted_as_attempt_one() -> None:
    assert decide_claim(JOB, None, "one", NOW) == Grant(attempt=1, expire=None)


@pytest.mark.req("P4")
@pytest.mark.parametrize("boot", ["one", "two"])
def test_an_expired_active_lease_is_claimable_with_the_next_attempt(boot: str) -> None:
    assert decide_claim(LEASED, OVER, boot, NOW) == Grant(attempt=2, expire=LEASE.id)


@pytest.mark.parametrize("state", [LeaseState.EXPIRED, LeaseState.FENCED])
def test_a_lease_that_was_ended_is_not_ended_again(state: LeaseState) -> None:
    assert decide_claim(LEASED, replace(LEASE, state=state), "two", NOW) == Grant(attempt=2, expire=None)


def test_a_second_delivery_to_the_holder_is_already_his() -> None:
    assert decide_claim(LEASED, LEASE, "one", NOW) == AlreadyYours(LEASE.id, 1)


@pytest.mark.req("P4")
def test_another_boot_waits_for_the_rest_of_the_lease() -> None:
    assert decide_claim(LEASED, LEASE, "two", NOW) == Wait(25.0)


def test_a_wait_is_never_a_hot_loop() -> None:
    almost = replace(LEASE, expires_at=NOW + timedelta(microseconds=1))
    decision = decide_claim(LEASED, almost, "two", NOW)
    assert isinstance(decision, Wait)
    assert decision.delay_s >= 0.1


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_an_ended_job_is_terminal_whatever_its_lease_says(state: JobState) -> None:
    assert decide_claim(replace(JOB, state=state), LEASE, "one", NOW) == Ended(state)


@pytest.mark.req("P4")
def test_no_attempt_beyond_the_limit() -> None:
    spent = replace(LEASED, attempt_count=3)
    assert decide_claim(spent, OVER, "one", NOW) == GiveUp(ErrorCode.ATTEMPTS_EXHAUSTED, LEASE.id)
    assert decide_claim(spent, LEASE, "one", NOW) == AlreadyYours(LEASE.id, 1), "the last attempt may finish"


def test_no_attempt_after_the_deadline() -> None:
    late = replace(JOB, deadline_at=NOW)
    assert decide_claim(late, None, "one", NOW) == GiveUp(ErrorCode.DEADLINE_EXCEEDED, None)


@pytest.mark.req("P4")
def test_a_renewal_needs_the_token_the_boot_and_the_time() -> None:
    assert decide_renew(LEASE, "local", "one", TOKEN, NOW) is None
    assert decide_renew(LEASE, "local", "one", ids.new_token(), NOW) is ErrorCode.PERMISSION_DENIED
    assert decide_renew(LEASE, "other", "one", TOKEN, NOW) is ErrorCode.PERMISSION_DENIED
    assert decide_renew(None, "local", "one", TOKEN, NOW) is ErrorCode.PERMISSION_DENIED
    assert decide_renew(LEASE, "local", "two", TOKEN, NOW) is ErrorCode.BOOT_SUPERSEDED


@pytest.mark.req("P4")
@pytest.mark.parametrize("dead", [OVER, *(replace(LEASE, state=state) for state in LeaseState if state != "active")])
def test_the_token_of_a_lease_that_is_over_is_dead(dead: LeaseSnapshot) -> None:
    assert decide_renew(dead, "local", "one", TOKEN, NOW) is ErrorCode.LEASE_FENCED


@pytest.mark.req("P4")
def test_only_the_hash_of_a_token_is_kept() -> None:
    assert TOKEN not in repr(LEASE)
    assert len(token_hash(TOKEN)) == 64
    assert token_hash(TOKEN) != token_hash(ids.new_token())


def test_after_a_restart_nobody_has_less_time_than_a_whole_ttl() -> None:
    assert extended(NOW - timedelta(hours=1), NOW, 30) == NOW + timedelta(seconds=30)
    assert extended(NOW + timedelta(seconds=45), NOW, 30) == NOW + timedelta(seconds=45)


@pytest.mark.req("B2", "B4")
@pytest.mark.parametrize(
    ("delivery", "code"),
    [
        ("$JS.ACK.MF_JOBS.other-work.1.7.7.1.0", ErrorCode.PERMISSION_DENIED),
        ("$JS.ACK.MF_JOBS.local-control.1.7.7.1.0", ErrorCode.PERMISSION_DENIED),
        ("$JS.ACK.MF_EVIDENCE.local-work.1.7.7.1.0", ErrorCode.PERMISSION_DENIED),
        ("$JS.API.STREAM.DELETE.MF_JOBS", ErrorCode.MALFORMED_MESSAGE),
        ("mf.cmd.local", ErrorCode.MALFORMED_MESSAGE),
        ("", ErrorCode.MALFORMED_MESSAGE),
    ],
)
def test_the_controller_publishes_to_no_other_delivery(delivery: str, code: ErrorCode) -> None:
    with pytest.raises(ModelForgeError) as caught:
        check_delivery(delivery, "local", Lane.WORK)
    assert caught.value.code is code
    assert check_delivery(DELIVERY, "local", Lane.WORK).stream_sequence == 7
