"""The view-model as values: what is listed, what is wrong, and what the link allows to claim."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import Budgets
from bus.states import PROBE_ACTIVE, ProbeState
from tests.support.pictures import NOW, ago, node, nodes, picture, probe, probes
from tui.lines import Tone
from tui.model import (
    GLYPHS,
    TONES,
    Board,
    Fault,
    Link,
    LinkState,
    age_s,
    asking,
    budget_s,
    fault_of,
    linked,
    matches,
    moment_of,
    moved,
    next_asking,
    received,
    superseded,
    visible,
)
from tui.rows import gauge, row_of

S = ProbeState
BOARD = Board(link=Link(since=ago(60)))


def live() -> Board:
    return received(BOARD, picture(), NOW)


def test_every_state_has_a_glyph_of_its_own_and_a_tone() -> None:
    assert set(GLYPHS) == set(TONES) == set(ProbeState)
    assert len(set(GLYPHS.values())) == len(ProbeState)


def test_active_probes_come_first_then_the_newest() -> None:
    states = [view.state for view in visible(live(), NOW)]
    assert states[:4] == [S.LOADING, S.LOADING, S.QUEUED, S.HEALTHCHECKING]
    finished = [view.queued_at for view in visible(live(), NOW)[4:]]
    assert finished == sorted(finished, reverse=True)


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 9), ("gpu", 4), ("GPU", 4), ("!gpu", 5), ("loading", 2), ("offline_load", 1), ("cnd-6w2x", 1), ("nothing", 0), ("!", 9)],
)  # fmt: skip
def test_the_filter(text: str, count: int) -> None:
    assert sum(matches(view, text) for view in picture().probes.values()) == count


@pytest.mark.parametrize("state", PROBE_ACTIVE)
def test_a_phase_over_its_budget_is_a_fault(state: ProbeState) -> None:
    budgets = Budgets(preparing_s=10, loading_s=10, healthchecking_s=10, unloading_s=10)
    late = probe("a", state, 20, 11, budgets=budgets)
    wanted = Fault.OVER_BUDGET if budget_s(state, budgets) is not None else None
    assert fault_of(late, nodes(), NOW) is wanted
    assert fault_of(probe("a", state, 20, 9, budgets=budgets), nodes(), NOW) is None


def test_a_probe_that_waits_for_a_lost_node_is_a_fault() -> None:
    waiting = probe("a", S.QUEUED, 20, 20, node="gpu-2")
    assert fault_of(waiting, nodes(), NOW) is Fault.NODE_OFFLINE
    assert fault_of(waiting, {}, NOW) is None
    assert fault_of(waiting, {"gpu-2": node("gpu-2", "doubtful", 11)}, NOW) is None


def test_a_failure_that_a_later_probe_answered_is_history() -> None:
    old, passed, other = (
        probe("a", S.FAILED, 100, 90), probe("b", S.COMPLETED, 50, 40), probe("c", S.FAILED, 100, 90, node="gpu-1")
    )  # fmt: skip
    state = picture(probes={view.id: view for view in (old, passed, other)})
    assert superseded(state) == {old.id}
    assert [view.id for view in asking(state, NOW)] == [other.id]
    newer = probe("d", S.FAILED, 10, 5)
    assert superseded(picture(probes={view.id: view for view in (passed, newer)})) == frozenset()


def test_the_cursor_follows_its_probe_and_falls_back_to_the_first() -> None:
    board = live()
    rows = visible(board, NOW)
    assert board.cursor == rows[0].id
    assert moved(board, rows, 2).cursor == rows[2].id
    assert moved(board, rows, -5).cursor == rows[0].id
    assert moved(board, rows, 10**6).cursor == rows[-1].id
    assert moved(board, (), 1) is board
    gone = {key: view for key, view in picture().probes.items() if key != board.cursor}
    assert received(board, picture(probes=gone), NOW).cursor == rows[1].id
    assert received(board, picture(probes={}), NOW).cursor is None


def test_next_asking_stays_where_nothing_asks() -> None:
    calm = picture(probes={"prb-0a2b4c6d8e": picture().probes["prb-0a2b4c6d8e"]})
    board = received(BOARD, calm, NOW)
    assert next_asking(board, NOW) == board
    assert next_asking(BOARD, NOW) is BOARD


def test_the_link_keeps_its_beginning() -> None:
    board = live()
    lost = picture(connected=False, last_error="gone")
    once = received(board, lost, NOW + timedelta(seconds=5))
    twice = received(once, lost, NOW + timedelta(seconds=9))
    assert (twice.link.state, twice.link.reason) == (LinkState.RECONNECTING, "gone")
    assert twice.link.since == NOW + timedelta(seconds=5)
    assert received(twice, picture(), NOW + timedelta(seconds=11)).link.live
    assert linked(board, LinkState.DISCONNECTED, NOW, "end").link.since == NOW


@pytest.mark.parametrize("code", ["NO_CONTROLLER", "REQUEST_TIMEOUT"])
def test_a_silent_controller_is_told_from_a_lost_connection(code: str) -> None:
    error = ModelForgeError(ErrorCode(code), "no answer")
    board = received(live(), picture(connected=False, last_error=str(error)), NOW)
    assert board.link.state is LinkState.SILENT


def test_nothing_is_claimed_before_the_first_picture() -> None:
    empty = picture(probes={}, nodes={}, connected=False, sequence=0, last_error="NO_CONTROLLER: nobody answers")
    board = received(BOARD, empty, NOW)
    assert board.picture is None
    assert board.link.state is LinkState.CONNECTING
    assert board.link.reason == "NO_CONTROLLER: nobody answers"


def test_time_stands_still_while_the_link_is_down_and_ignores_a_wrong_clock() -> None:
    here = NOW + timedelta(hours=5)  # this machine's clock is five hours ahead of the controller's
    board = received(BOARD, picture(), here)
    assert moment_of(board, here + timedelta(seconds=7)) == NOW + timedelta(seconds=7)
    assert age_s(board, here + timedelta(seconds=7)) == 7
    down = received(board, picture(connected=False), here + timedelta(seconds=8))
    assert moment_of(down, here + timedelta(seconds=90)) == NOW
    assert age_s(down, here + timedelta(seconds=90)) == 90


def test_an_event_renews_the_age_only_with_its_time() -> None:
    board = received(live(), picture(sequence=1_843), NOW + timedelta(seconds=3))
    assert age_s(board, NOW + timedelta(seconds=3)) == 3
    board = received(board, picture(as_of=NOW + timedelta(seconds=4)), NOW + timedelta(seconds=4))
    assert age_s(board, NOW + timedelta(seconds=4)) == 0


@pytest.mark.parametrize(
    ("key", "note", "tone"),
    [
        ("prb-7k3m9q2xta", "12s of 5m00s   ▰▱▱▱▱▱▱▱", Tone.TEXT),
        ("prb-2v8c5n1wze", "! 1m14s of 1m00s over", Tone.BAD),
        ("prb-5t0p4h6yrb", "! node offline, 3m09s", Tone.BAD),
        ("prb-9d1f3g7jks", "cancelling, 31s", Tone.WARN),
        ("prb-0a2b4c6d8e", "cnd-6w2x9r4t1m", Tone.GOOD),
        ("prb-3h5j7k9m1n", "GPU_MEMORY_NOT_RECLAIMED", Tone.BAD),
        ("prb-8s1t3v5w7x", "on request", Tone.DIM),
    ],
)
def test_a_row_says_what_matters_most(key: str, note: str, tone: Tone) -> None:
    row = row_of(probes()[key], nodes(), NOW)
    assert (row.note, row.note_tone) == (note, tone)
    assert len(row.note) <= 24


def test_durations_are_never_negative_when_clocks_differ() -> None:
    early = msgspec.structs.replace(probe("a", S.LOADING, 5, 5), state_at=NOW + timedelta(seconds=30))
    row = row_of(replace(BOARD, picture=picture(probes={early.id: early})).picture.probes[early.id], {}, NOW)  # type: ignore[union-attr]
    assert row.note.startswith("0s of")


def test_the_gauge() -> None:
    assert [gauge(part) for part in (0, 0.01, 0.5, 1, 9, -1)] == [
        "▱▱▱▱▱▱▱▱", "▰▱▱▱▱▱▱▱", "▰▰▰▰▱▱▱▱", "▰▰▰▰▰▰▰▰", "▰▰▰▰▰▰▰▰", "▱▱▱▱▱▱▱▱",
    ]  # fmt: skip
