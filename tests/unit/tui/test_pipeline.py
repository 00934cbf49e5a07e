"""Where a probe stands, and where it broke."""

from __future__ import annotations

import pytest

from bus.errors import Failure
from bus.messages.gates import ProbeView
from bus.states import ProbeState
from tests.support.pictures import NOW, marks, probe, probes
from tui.lines import plain
from tui.pipeline import Mark, pipeline_lines, steps

S = ProbeState


def shape(view: ProbeView) -> str:
    """The marks as one letter each."""
    letters = {Mark.DONE: "d", Mark.CURRENT: "c", Mark.BROKEN: "x", Mark.NEVER: "-", Mark.PENDING: "."}
    return "".join(letters[step.mark] for step in steps(view, NOW))


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("prb-7k3m9q2xta", "ddc...."),
        ("prb-5t0p4h6yrb", "c......"),
        ("prb-0a2b4c6d8e", "ddddddd"),
        ("prb-3h5j7k9m1n", "dddddxx"),  # memory was not given back: it broke in unloading
        ("prb-4m6n8p0q2r", "ddx--dx"),  # every failure goes through unloading; it broke before
        ("prb-8s1t3v5w7x", "dd---dd"),
        ("prb-6y8z0a2c4e", "ddx---x"),  # the third attempt was lost while loading
    ],
)
def test_shapes(key: str, wanted: str) -> None:
    assert shape(probes()[key]) == wanted


def test_a_probe_given_up_in_the_queue_broke_there() -> None:
    failure = Failure(code="DEADLINE_EXCEEDED", message="never claimed")
    assert shape(probe("a", S.FAILED, 100, 10, attempt=0, failure=failure)) == "x-----x"


def test_one_cancelled_in_the_queue_was_never_begun() -> None:
    view = probe("a", S.CANCELLED, 100, 10, attempt=0)
    assert shape(view) == "d-----d"
    assert steps(view, NOW)[0].seconds == 90


def test_the_queue_ends_with_the_first_attempt_and_phases_are_of_the_latest() -> None:
    view = probes()["prb-2v8c5n1wze"]
    seconds = {step.state: step.seconds for step in steps(view, NOW)}
    assert seconds[S.QUEUED] == 2
    assert seconds[S.PREPARING] == 3
    assert seconds[S.LOADING] == 104
    assert seconds[S.HEALTHCHECKING] == 74


def test_a_state_without_its_mark_is_still_shown() -> None:
    view = probe("a", S.LOADING, 30, 7, timeline=marks(1, (S.PREPARING, 20)))
    assert shape(view) == "ddc...."
    assert steps(view, NOW)[1].seconds == 13


@pytest.mark.parametrize("width", [78, 118])
def test_every_pipeline_fits_and_durations_stand_under_their_phase(width: int) -> None:
    for view in probes().values():
        names, times, _ = pipeline_lines(view, NOW, width)
        assert len(plain(names)) <= width
        assert len(plain(times)) <= width
        for step, piece in zip(steps(view, NOW), plain(names)[1:].split(" → "), strict=True):
            start = plain(names).index(piece) if step.seconds else 0
            assert step.seconds is None or plain(times)[start : start + 2] == "  "


def test_the_budget_line_says_how_much_is_over() -> None:
    views = probes()
    assert plain(pipeline_lines(views["prb-2v8c5n1wze"], NOW, 80)[2]).endswith("over budget by 14s")
    assert "12s of 5m00s (4%)" in plain(pipeline_lines(views["prb-7k3m9q2xta"], NOW, 80)[2])
    assert "no limit of its own" in plain(pipeline_lines(views["prb-5t0p4h6yrb"], NOW, 80)[2])
    assert plain(pipeline_lines(views["prb-0a2b4c6d8e"], NOW, 80)[2]).strip() == ""
