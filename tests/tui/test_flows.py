"""Keys, dialogs and what becomes of them."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import msgspec
import pytest
from textual.widgets import Button

from bus.errors import ErrorCode, ModelForgeError
from bus.states import ProbeState
from tests.support.pictures import NOW, FakeDesk, picture, probe, probes
from tests.support.screens import press, running, settled, text_of
from tui.app import ModelForgeApp
from tui.model import LinkState
from tui.screens.cancel import CancelScreen
from tui.screens.help import HelpScreen
from tui.screens.log import LogScreen
from tui.screens.probes import ProbesScreen

LOADING = "prb-7k3m9q2xta"


def probes_screen(app: ModelForgeApp) -> ProbesScreen:
    return cast("ProbesScreen", app.screen_stack[1])


async def test_an_event_is_on_the_screen_after_the_next_tick() -> None:
    desk = FakeDesk()
    async with running(desk) as (app, pilot):
        later = probe("7k3m9q2xta", ProbeState.HEALTHCHECKING, 17, 1)
        desk.send(picture(probes={**picture().probes, LOADING: later}, sequence=1_843))
        assert "event 1842" in text_of(app)  # painting waits for the tick, however many events come
        await settled(pilot)
        assert "event 1843" in text_of(app)
        assert f"▌◕ healthchecking {LOADING}" in text_of(app)


async def test_the_cursor_stays_on_its_probe_when_rows_move() -> None:
    desk = FakeDesk()
    async with running(desk) as (app, pilot):
        await press(pilot, "j")
        chosen = probes_screen(app).board.cursor
        newer = probe("zzzzzzzzzz", ProbeState.PREPARING, 1, 1)
        desk.send(picture(probes={newer.id: newer, **picture().probes}))
        await settled(pilot)
        assert probes_screen(app).board.cursor == chosen
        assert f"▌◑ loading        {chosen}" in text_of(app)


async def test_the_cursor_scrolls_the_list_and_stops_at_its_ends() -> None:
    many = {view.id: view for view in (probe(f"{n:010d}", ProbeState.COMPLETED, n, n) for n in range(1, 301))}
    async with running(FakeDesk(states=[picture(probes=many)], views=many)) as (app, pilot):
        await press(pilot, "G")
        assert "▌✓ completed      prb-0000000300" in text_of(app)
        await press(pilot, "j", "pageup", "pageup")
        assert "prb-0000000300" not in text_of(app)
        await press(pilot, "g", "k")
        assert "▌✓ completed      prb-0000000001" in text_of(app)


async def test_escape_leaves_one_thing_at_a_time() -> None:
    async with running(FakeDesk()) as (app, pilot):
        screen = probes_screen(app)
        await press(pilot, "f", "slash", "g", "p", "u", "enter", "enter")
        assert screen.has_class("-reading")
        await press(pilot, "escape")
        assert not screen.has_class("-reading")
        assert screen.board.filter_text == "gpu"
        await press(pilot, "escape")
        assert screen.board.filter_text == ""
        assert screen.board.faults_only
        await press(pilot, "escape")
        assert not screen.board.faults_only


async def test_n_goes_through_what_asks_and_round_again() -> None:
    async with running(FakeDesk()) as (app, pilot):
        seen = []
        for _ in range(5):
            await press(pilot, "n")
            seen.append(probes_screen(app).board.cursor)
        assert seen == ["prb-5t0p4h6yrb", "prb-2v8c5n1wze", "prb-3h5j7k9m1n", "prb-6y8z0a2c4e", "prb-5t0p4h6yrb"]


async def test_n_says_why_it_goes_nowhere() -> None:
    calm = picture(probes={LOADING: picture().probes[LOADING]})
    async with running(FakeDesk(states=[calm])) as (app, pilot):
        await press(pilot, "n")
        assert "No probe asks for you." in text_of(app)


async def test_what_hides_the_probes_is_named_and_nothing_else() -> None:
    async with running(FakeDesk()) as (app, pilot):
        await press(pilot, "slash", *"zzz", "enter")
        assert "No probe matches. esc clears the filter." in text_of(app)
        assert "f lists" not in text_of(app)
        await press(pilot, "f")
        assert "No fault matches. esc clears the filter; f lists more than faults." in text_of(app)
        await press(pilot, "n")
        assert "4 probes ask for you, but" in text_of(app)


async def test_a_cancel_needs_typed_characters_and_two_more_keys() -> None:
    desk = FakeDesk()
    async with running(desk) as (app, pilot):
        await press(pilot, "x")
        dialog = app.screen
        assert isinstance(dialog, CancelScreen)
        assert dialog.query_one("#no", Button).has_focus
        await press(pilot, "tab")
        assert dialog.query_one("#no", Button).has_focus  # there is nothing else to choose yet
        await press(pilot, "7", "k", "3", "x", "enter")
        assert desk.cancelled == []
        assert isinstance(app.screen, ProbesScreen)
        await press(pilot, "x", "7", "k", "3", "x", "backspace", "m", "enter")
        assert desk.cancelled == []  # enter still stands on No
        await press(pilot, "x", "7", "k", "3", "m", "tab", "enter")
        assert desk.cancelled == [LOADING]
        assert desk.reasons == [""]
        assert "accepted" in text_of(app)


async def test_a_no_that_was_meant_as_a_yes_is_seen() -> None:
    desk = FakeDesk()
    async with running(desk) as (app, pilot):
        await press(pilot, "x")
        assert "▸ No, let it run" in text_of(app)
        await press(pilot, *"7k3m")
        assert "✓ matches; enter alone lets it run on" in text_of(app)
        await press(pilot, "tab")
        assert "▸ Cancel the probe" in text_of(app)
        assert "✓ matches; enter cancels it" in text_of(app)
        await press(pilot, "left", "enter")
        assert desk.cancelled == []
        assert "Not cancelled: it runs on." in text_of(app)
        app.clear_notifications()
        await press(pilot, "j", "j", "x", "escape")
        assert "Not cancelled: it waits on." in text_of(app)


async def test_a_cancel_takes_a_reason_and_enter_in_it_confirms_nothing() -> None:
    desk = FakeDesk()
    async with running(desk) as (app, pilot):
        await press(pilot, "x", *"7k3m", "shift+tab", *"the wrong set", "left", "left", "enter")
        dialog = app.screen
        assert isinstance(dialog, CancelScreen)
        assert dialog.query_one("#no", Button).has_focus
        assert desk.cancelled == []
        await press(pilot, "tab", "enter")
        assert desk.cancelled == [LOADING]
        assert desk.reasons == ["the wrong set"]


async def test_an_impossible_cancel_says_why() -> None:
    desk = FakeDesk()
    async with running(desk) as (app, pilot):
        await press(pilot, "j", "j", "j", "j", "x")
        assert isinstance(app.screen, ProbesScreen)
        assert "already ended" in text_of(app)
        desk.send(picture(connected=False, last_error="gone"))
        await press(pilot, "g", "x")
        assert "the link is reconnecting" in text_of(app)


async def test_a_viewer_is_told_once_and_then_shown_as_read_only() -> None:
    desk = FakeDesk(refuse=ModelForgeError(ErrorCode.PERMISSION_DENIED, "ada may only read"))
    async with running(desk, (120, 40)) as (app, pilot):
        await press(pilot, "x", "7", "k", "3", "m", "tab", "enter")
        assert "PERMISSION_DENIED: ada may only read" in text_of(app)
        assert "read-only" in text_of(app)
        await press(pilot, "x")
        assert isinstance(app.screen, ProbesScreen)


async def test_the_log_is_filtered_whole() -> None:
    lines = "\n".join(f"line {number}" for number in range(1, 5_001))
    async with running(FakeDesk(log_text=lines)) as (app, pilot):
        await press(pilot, "l", "slash", *"line 44", "enter")
        assert isinstance(app.screen, LogScreen)
        assert "111 of 5000 lines" in text_of(app)
        await press(pilot, "escape")
        assert "lines" not in text_of(app)
        await press(pilot, "G")
        assert " 5000 line 5000" in text_of(app)
        await press(pilot, "q")
        assert isinstance(app.screen, ProbesScreen)


async def test_the_log_of_a_running_attempt_comes_with_its_end() -> None:
    views = probes()
    desk = FakeDesk(views=views, refuse=ModelForgeError(ErrorCode.UNKNOWN_ID, "there is no log of attempt 1"))
    async with running(desk) as (app, pilot):
        await press(pilot, "l")
        assert "Attempt 1 is under way (loading); its log comes with its end." in text_of(app)
        assert "UNKNOWN_ID" not in text_of(app)
        assert "✗" not in text_of(app)
        views[LOADING] = probe("7k3m9q2xta", ProbeState.FAILED, 17, 1)
        await press(pilot, "r")
        assert "Attempt 1 ended without leaving a log." in text_of(app)
        desk.refuse = None
        await press(pilot, "r")
        assert "1 loading weights" in text_of(app)


async def test_a_log_that_is_refused_for_another_reason_is_a_failure() -> None:
    desk = FakeDesk(refuse=ModelForgeError(ErrorCode.NO_CONTROLLER, "nobody answers"))
    async with running(desk) as (app, pilot):
        await press(pilot, "l")
        assert "✗ failed  NO_CONTROLLER" in text_of(app)


async def test_logs_of_earlier_attempts() -> None:
    async with running(FakeDesk()) as (app, pilot):
        await press(pilot, "n", "n", "l")
        assert "attempt 2 of 2" in text_of(app)
        await press(pilot, "left_square_bracket", "left_square_bracket")
        assert "attempt 1 of 2" in text_of(app)
        await press(pilot, "right_square_bracket")
        assert "attempt 2 of 2" in text_of(app)


async def test_copying_goes_through_the_terminal() -> None:
    async with running(FakeDesk()) as (app, pilot):
        await press(pilot, "y")
        assert app.clipboard == LOADING
        await press(pilot, "Y")
        assert app.clipboard == f"modelforge probe watch {LOADING}"
        assert "copied: modelforge probe watch" in text_of(app)


async def test_evidence_is_asked_for_once_and_again_when_it_changed() -> None:
    asked: list[str] = []

    class Counting(FakeDesk):
        async def show(self, probe_id: str) -> object:  # type: ignore[override]
            asked.append(probe_id)
            return await super().show(probe_id)

    desk = Counting()
    done = "prb-0a2b4c6d8e"
    async with running(desk, (120, 40)) as (app, pilot):
        await press(pilot, "j", "j", "j", "j")
        await press(pilot, "k")
        await press(pilot, "j")
        desk.send(picture(sequence=1_900))
        await settled(pilot)
        assert asked == [done]
        assert "384 values float32" in text_of(app)
        changed = msgspec.structs.replace(picture().probes[done], state_at=NOW)
        desk.send(picture(probes={**picture().probes, done: changed}))
        await settled(pilot)
        assert asked == [done, done]


async def test_a_refused_show_is_said_in_place_of_the_evidence() -> None:
    class Refusing(FakeDesk):
        async def show(self, probe_id: str) -> object:  # type: ignore[override]
            raise ModelForgeError(ErrorCode.NO_CONTROLLER, "nobody answers")

    async with running(Refusing(), (120, 40)) as (app, pilot):
        await press(pilot, "j", "j", "j", "j")
        assert "n/a (NO_CONTROLLER: nobody answers." in text_of(app)


async def test_durations_stand_still_while_nothing_is_known() -> None:
    moment = NOW
    desk = FakeDesk()
    async with running(desk, (120, 40), clock=lambda: moment) as (app, pilot):
        moment = NOW + timedelta(seconds=5)
        await settled(pilot)
        assert "loading 17s of 5m00s" in text_of(app)
        desk.send(picture(connected=False, last_error="the connection was lost"))
        moment = NOW + timedelta(seconds=95)
        await settled(pilot)
        assert probes_screen(app).board.link.state is LinkState.RECONNECTING
        assert "loading 12s of 5m00s" in text_of(app)
        assert "reconnecting" in text_of(app)
        assert "as of 12:00:00 UTC (1m35s ago)" in text_of(app)


async def test_a_wrong_clock_here_makes_no_wrong_durations() -> None:
    wrong = NOW + timedelta(hours=3)
    async with running(FakeDesk(), clock=lambda: wrong) as (app, _):
        assert "loading 12s of 5m00s" in text_of(app)
        assert "connected · 0s ago" in text_of(app)


async def test_help_names_every_key_of_the_screen_below() -> None:
    async with running(FakeDesk(), (120, 60)) as (app, pilot):
        await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen)
        text = text_of(app)
        for words in ("next probe", "faults only", "log of the attempt", "copy the id", "healthchecking", "quit"):
            assert words in text
        await press(pilot, "question_mark")
        assert isinstance(app.screen, ProbesScreen)


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
async def test_quitting(key: str) -> None:
    async with running(FakeDesk()) as (app, pilot):
        await pilot.press(key)
        await pilot.pause()
        assert app.return_code == 0


async def test_the_mouse_picks_a_row() -> None:
    async with running(FakeDesk()) as (app, pilot):
        await pilot.click("#probes", offset=(20, 4))
        await settled(pilot)
        assert probes_screen(app).board.cursor == list(probes())[4]
