from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bus.feed import FeedState, apply, from_picture
from bus.messages.api import ProbePicture
from bus.messages.events import Event
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.states import ProbeState
from tests.support.views import node_view, probe_view

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def picture(sequence: int, *probes: ProbeView) -> FeedState:
    return from_picture(ProbePicture(as_of_sequence=sequence, at=T0, probes=probes, nodes=(node_view("a"),)))


def event(sequence: int, *, probe: ProbeView | None = None, node: NodeView | None = None) -> Event:
    at = T0 + timedelta(seconds=sequence)
    return Event(sequence=sequence, at=at, entity="probe", id="x", what="loading", actor="node", probe=probe, node=node)


def test_a_picture_is_the_state_as_of_its_sequence() -> None:
    state = picture(7, probe_view("prb-2"), probe_view("prb-1"))
    assert list(state.probes) == ["prb-2", "prb-1"]
    assert list(state.nodes) == ["a"]
    assert (state.sequence, state.connected, state.as_of, state.last_error) == (7, True, T0, None)


def test_the_next_event_changes_its_probe_in_place() -> None:
    before = picture(7, probe_view("prb-2"), probe_view("prb-1"))
    after = apply(before, event(8, probe=probe_view("prb-1", ProbeState.LOADING)))
    assert after is not None
    assert list(after.probes) == ["prb-2", "prb-1"]
    assert after.probes["prb-1"].state is ProbeState.LOADING
    assert (after.sequence, after.as_of) == (8, T0 + timedelta(seconds=8))
    assert before.probes["prb-1"].state is ProbeState.QUEUED


def test_a_new_probe_comes_first_and_a_node_is_replaced() -> None:
    state = apply(picture(7, probe_view("prb-1")), event(8, probe=probe_view("prb-2"), node=node_view("a", "offline")))
    assert state is not None
    assert list(state.probes) == ["prb-2", "prb-1"]
    assert state.nodes["a"].liveness == "offline"


def test_an_event_about_something_else_moves_the_sequence_only() -> None:
    before = picture(7, probe_view("prb-1"))
    after = apply(before, event(8))
    assert after is not None
    assert after.sequence == 8
    assert after.probes is before.probes


def test_an_old_event_is_nothing_and_a_gap_asks_for_a_picture() -> None:
    state = picture(7)
    assert apply(state, event(7)) is state
    assert apply(state, event(3)) is state
    assert apply(state, event(9)) is None


def test_the_number_of_probes_is_bounded() -> None:
    state = picture(0)
    for number in range(1, 600):
        following = apply(state, event(number, probe=probe_view(f"prb-{number}")))
        assert following is not None
        state = following
    assert len(state.probes) == 500
    assert next(iter(state.probes)) == "prb-599"
