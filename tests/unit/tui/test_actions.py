"""A cancel is offered exactly where the state tables let one begin, and refused with a reason elsewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bus.states import PROBE, Cause, ProbeEvent, ProbeState
from tests.support.pictures import NOW, picture, probe
from tui.actions import cancel_offer, challenge, command_for
from tui.model import Board, Link, received

S = ProbeState
LIVE = received(Board(link=Link(since=NOW)), picture(), NOW)


@pytest.mark.parametrize("state", ProbeState)
def test_the_tables_decide(state: ProbeState) -> None:
    offer = cancel_offer(LIVE, probe("a", state, 10, 5))
    assert (offer.reason is None) == (not PROBE.is_terminal(state))
    assert bool(offer.effect) == (offer.reason is None)
    if PROBE.allows(state, ProbeEvent.CANCEL, Cause.OPERATOR):
        assert "ends at once" in offer.effect


def test_what_stands_in_the_way_is_named() -> None:
    loading = probe("a", S.LOADING, 10, 5)
    down = received(LIVE, picture(connected=False), NOW + timedelta(seconds=1))
    assert cancel_offer(LIVE, None).reason == "no probe is chosen"
    assert cancel_offer(down, loading).reason == "the link is reconnecting"
    assert cancel_offer(replace(LIVE, refusal="ada may only read"), loading).reason == "ada may only read"
    twice = cancel_offer(LIVE, probe("a", S.LOADING, 10, 5, cancel_requested=True))
    assert twice.reason == "its cancellation is already under way"


def test_the_challenge_is_the_random_part() -> None:
    assert challenge("prb-7k3m9q2xta") == "7k3m"


@pytest.mark.parametrize(
    ("state", "log", "command"),
    [
        (S.LOADING, None, "modelforge probe watch prb-a"),
        (S.COMPLETED, "runtime-worker://x", "modelforge probe show prb-a"),
        (S.FAILED, "runtime-worker://x", "modelforge probe log prb-a"),
        (S.FAILED, None, "modelforge probe show prb-a"),
    ],
)
def test_the_command_that_shows_the_same(state: ProbeState, log: str | None, command: str) -> None:
    assert command_for(probe("a", state, 10, 5, log_ref=log)) == command
