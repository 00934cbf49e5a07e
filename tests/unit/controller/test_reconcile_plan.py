"""Ledger against queue, planned purely."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bus.states import JobState
from bus.subjects import Lane
from controller.lease_rules import JobSnapshot
from controller.reconcile import Ledger, Plan, plan

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
QUEUED = JobSnapshot(
    id="prb-0000000001", type="probe", node="local", lane=Lane.WORK, state=JobState.QUEUED, attempt_count=0,
    max_attempts=3, cancel_requested=False, deadline_at=NOW + timedelta(hours=1),
)  # fmt: skip
LEASED = replace(QUEUED, id="prb-0000000002", state=JobState.LEASED)
ENDED = replace(QUEUED, id="prb-0000000003", state=JobState.SUCCEEDED)
NOTHING = Plan(republish=(), settle=(), unknown=())


def ledger(*jobs: JobSnapshot, waiting: frozenset[str] = frozenset()) -> Ledger:
    return Ledger(jobs={job.id: job for job in jobs}, waiting=waiting)


def test_what_agrees_is_left_alone() -> None:
    assert plan({QUEUED.subject, LEASED.subject}, ledger(QUEUED, LEASED)) == NOTHING
    assert plan(set(), ledger()) == NOTHING


@pytest.mark.req("D1")
def test_an_open_job_whose_message_is_gone_is_published_again() -> None:
    assert plan({QUEUED.subject}, ledger(QUEUED, LEASED)).republish == (LEASED.id,)


def test_what_the_outbox_will_publish_is_not_gone() -> None:
    assert plan(set(), ledger(QUEUED, waiting=frozenset({QUEUED.id}))) == NOTHING


def test_the_message_of_an_ended_job_is_settled() -> None:
    assert plan({ENDED.subject}, ledger(ENDED)).settle == (ENDED.id,)
    assert plan(set(), ledger(ENDED)) == NOTHING


def test_a_message_without_a_job_is_unknown_also_on_another_nodes_subject() -> None:
    foreign = replace(QUEUED, node="other").subject
    found = plan({"mf.jobs.local.work.prb-9999999999", foreign}, ledger(QUEUED))
    assert found.unknown == ("mf.jobs.local.work.prb-9999999999", foreign)
    assert found.republish == (QUEUED.id,)
