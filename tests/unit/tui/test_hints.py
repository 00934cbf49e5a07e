"""Where nothing can be shown or done, the hint names what helps, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bus.states import ProbeState
from tests.support.pictures import NOW, picture, probe
from tui.hints import empty_hint, kept_hint, next_hint, no_log_hint
from tui.model import Board, Link, received

S = ProbeState
LIVE = received(Board(link=Link(since=NOW)), picture(), NOW)


def test_the_way_to_the_first_probe_names_every_gate() -> None:
    hint = empty_hint(received(Board(link=Link(since=NOW)), picture(probes={}), NOW))
    steps = ("artifact scan", "profile create NAME", "assess SET --profile NAME", "approve add", "probe queue")
    found = [hint.index(step) for step in steps]
    assert found == sorted(found)
    assert empty_hint(Board(link=Link(since=NOW))) == ""


@pytest.mark.parametrize(
    ("text", "faults", "hint"),
    [
        ("zzz", False, "No probe matches. esc clears the filter."),
        ("zzz", True, "No fault matches. esc clears the filter; f lists more than faults."),
        ("", True, "No probe is at fault. f lists all of them again."),
    ],
)
def test_only_what_hides_rows_is_named(text: str, faults: bool, hint: str) -> None:
    assert empty_hint(replace(LIVE, filter_text=text, faults_only=faults)).strip() == hint


def test_why_there_is_no_next_one() -> None:
    failed = probe("a", S.FAILED, 10, 5)
    one = received(Board(link=Link(since=NOW)), picture(probes={failed.id: failed}), NOW)
    calm = received(Board(link=Link(since=NOW)), picture(probes={"prb-b": probe("b", S.COMPLETED, 9, 5)}), NOW)
    assert next_hint(Board(link=Link(since=NOW)), NOW) == "Nothing is known yet."
    assert next_hint(LIVE, NOW) is None
    assert next_hint(calm, NOW) == "No probe asks for you."
    assert next_hint(one, NOW) == "No other probe in the list asks for you."
    assert next_hint(replace(one, cursor=None), NOW) is None
    assert (next_hint(replace(one, filter_text="zzz"), NOW) or "").startswith("1 probe asks for you, but the filter")


@pytest.mark.parametrize(
    ("state", "end"), [(S.QUEUED, "it waits on."), (S.LOADING, "it runs on."), (S.COMPLETED, "it has ended by itself.")]
)
def test_what_becomes_of_a_probe_that_was_not_cancelled(state: ProbeState, end: str) -> None:
    assert kept_hint(probe("a", state, 10, 5)) == f"Not cancelled: {end}"


@pytest.mark.parametrize(
    ("state", "latest", "asked", "hint"),
    [
        (S.QUEUED, 0, 1, "No attempt has begun yet"),
        (S.QUEUED, 1, 1, "Attempt 1 ended without"),
        (S.READY, 2, 2, "Attempt 2 is under way (ready)"),
        (S.READY, 2, 1, "Attempt 1 ended without"),
        (S.FAILED, 1, 1, "Attempt 1 ended without"),
    ],
)
def test_why_an_attempt_has_no_log(state: ProbeState, latest: int, asked: int, hint: str) -> None:
    assert no_log_hint(probe("a", state, 10, 5, attempt=latest), asked).startswith(hint)
