"""The transition tables, held against the specification's sentence about them (spec P3)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import ErrorCode, ModelForgeError
from bus.states import JOB, LEASE, PROBE, TABLES, Cause, JobEvent, JobState, LeaseEvent, LeaseState, ProbeEvent
from bus.states import ProbeState as P

# Written out by hand from the specification, so that a change of the table shows up here.
HAPPY = (P.QUEUED, P.PREPARING, P.LOADING, P.HEALTHCHECKING, P.READY, P.UNLOADING, P.COMPLETED)
ACTIVE = (P.PREPARING, P.LOADING, P.HEALTHCHECKING, P.READY, P.UNLOADING)
EXPECTED_EDGES = {
    *pairwise(HAPPY),
    *((state, P.PREPARING) for state in ACTIVE),
    *((state, P.UNLOADING) for state in (P.PREPARING, P.LOADING, P.HEALTHCHECKING)),
    (P.UNLOADING, P.FAILED),
    (P.UNLOADING, P.CANCELLED),
    (P.QUEUED, P.CANCELLED),
    *((state, P.FAILED) for state in (P.QUEUED, *ACTIVE)),
}


@pytest.mark.req("P3")
def test_a_probe_has_the_specified_states_and_no_other() -> None:
    assert [state.value for state in P] == [
        "queued", "preparing", "loading", "healthchecking", "ready", "unloading", "completed", "failed", "cancelled",
    ]  # fmt: skip


@pytest.mark.req("P3")
def test_a_probe_has_the_specified_edges_and_no_other() -> None:
    assert {(state, edge.to) for (state, _), edge in PROBE.edges.items()} == EXPECTED_EDGES


@pytest.mark.req("G5")
@pytest.mark.parametrize("event", list(ProbeEvent))
@pytest.mark.parametrize("state", [P.COMPLETED, P.FAILED, P.CANCELLED])
def test_a_probe_that_has_ended_accepts_nothing(state: P, event: ProbeEvent) -> None:
    for cause in Cause:
        with pytest.raises(ModelForgeError) as caught:
            PROBE.advance(state, event, cause)
        assert caught.value.code is ErrorCode.ILLEGAL_TRANSITION


@pytest.mark.req("P3")
def test_only_the_node_completes_and_only_the_controller_gives_up() -> None:
    assert PROBE.advance(P.UNLOADING, ProbeEvent.COMPLETE, Cause.NODE) is P.COMPLETED
    for cause in (Cause.OPERATOR, Cause.CONTROLLER):
        with pytest.raises(ModelForgeError):
            PROBE.advance(P.UNLOADING, ProbeEvent.COMPLETE, cause)
    with pytest.raises(ModelForgeError):
        PROBE.advance(P.LOADING, ProbeEvent.GIVE_UP, Cause.NODE)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_state_is_reachable_and_every_life_can_end(table: Any) -> None:
    reached = {table.initial}
    while True:
        further = {edge.to for (state, _), edge in table.edges.items() if state in reached} - reached
        if not further:
            break
        reached |= further
    assert reached == set(table.initial.__class__)
    assert not [state for (state, _) in table.edges if state in table.terminal]
    for state in reached - table.terminal:
        assert any(source is state for (source, _) in table.edges)


@given(st.lists(st.sampled_from(list(ProbeEvent)), max_size=40), st.sampled_from(list(Cause)))
def test_no_sequence_of_events_leaves_the_table(events: list[ProbeEvent], cause: Cause) -> None:
    state = PROBE.initial
    for event in events:
        before = state
        try:
            state = PROBE.advance(state, event, cause)
        except ModelForgeError:
            assert not PROBE.allows(before, event, cause)
        if PROBE.is_terminal(before):
            assert state is before


@pytest.mark.req("P4")
def test_the_end_of_a_lease_is_final_and_its_first_reason_stands() -> None:
    assert LEASE.advance(LeaseState.ACTIVE, LeaseEvent.EXPIRE, Cause.CONTROLLER) is LeaseState.EXPIRED
    assert LEASE.advance(LeaseState.EXPIRED, LeaseEvent.FENCE, Cause.CONTROLLER) is LeaseState.EXPIRED
    with pytest.raises(ModelForgeError):
        LEASE.advance(LeaseState.EXPIRED, LeaseEvent.RENEW, Cause.NODE)


def test_a_job_that_is_leased_may_be_claimed_again_but_never_after_its_end() -> None:
    assert JOB.advance(JobState.LEASED, JobEvent.CLAIM, Cause.NODE) is JobState.LEASED
    for state in JOB.terminal:
        assert not JOB.allows(state, JobEvent.CLAIM, Cause.NODE)
