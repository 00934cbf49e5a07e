"""What the operator sees, character by character, at three sizes: look at the files before changing them."""

from __future__ import annotations

import pytest

from bus.errors import ErrorCode, ModelForgeError
from tests.support.pictures import FakeDesk, nodes, picture
from tests.support.screens import check_snapshot, press, running, text_of

SIZES = [(80, 24), (120, 40), (160, 45)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_probes_screen(size: tuple[int, int]) -> None:
    suffix = f"{size[0]}x{size[1]}"
    async with running(FakeDesk(), size) as (app, pilot):
        check_snapshot(f"probes-{suffix}", text_of(app))
        for name, keys in (
            ("completed", "jjjj"),
            ("failed", "j"),
            ("reading-failed", ["enter"]),
            ("list-alone", ["escape", "d"]),
            ("faults", "df"),
        ):
            await press(pilot, *keys)
            check_snapshot(f"{name}-{suffix}", text_of(app))


async def test_screens_over_it() -> None:
    desk = FakeDesk(log_text="loading weights\nwarning: slow disk\nError: [/bold] no such tensor\ndone\n")
    async with running(desk) as (app, pilot):
        for name, keys in (
            ("help", ["question_mark"]),
            ("cancel", ["escape", "x"]),
            ("cancel-typed", ["7", "k", "3", "m", "tab"]),
            ("log", ["escape", "l"]),
            ("filter", ["escape", "slash", "g", "p", "u"]),
            ("no-match", ["z", "enter"]),
            ("reading-completed", ["escape", "n", "j", "j", "j", "enter", "pagedown"]),
        ):
            await press(pilot, keys[0])
            app.clear_notifications()  # a toast stays for as long as the clock says: it has a test of its own
            await press(pilot, *keys[1:])
            check_snapshot(f"{name}-80x24", text_of(app))


async def test_nothing_there_yet() -> None:
    async with running(FakeDesk(states=[picture(probes={}, nodes={})])) as (app, _):
        check_snapshot("empty-80x24", text_of(app))


async def test_all_is_well() -> None:
    calm = picture(probes={key: picture().probes[key] for key in ("prb-7k3m9q2xta", "prb-0a2b4c6d8e")})
    healthy = {name: node for name, node in nodes().items() if node.liveness == "online"}
    async with running(FakeDesk(states=[picture(probes=calm.probes, nodes=healthy)])) as (app, _):
        check_snapshot("calm-80x24", text_of(app))


async def test_link_lost() -> None:
    lost = picture(connected=False, last_error="NO_CONTROLLER: nobody answers")
    async with running(FakeDesk(states=[picture(), lost])) as (app, _):
        check_snapshot("lost-80x24", text_of(app))


async def test_feed_ended() -> None:
    end = ModelForgeError(ErrorCode.NOT_CONNECTED, "the connection was refused")
    async with running(FakeDesk(end=end)) as (app, _):
        check_snapshot("ended-80x24", text_of(app))


async def test_no_log_yet() -> None:
    refuse = ModelForgeError(ErrorCode.UNKNOWN_ID, "attempt 1 of prb-7k3m9q2xta has left no log")
    async with running(FakeDesk(refuse=refuse)) as (app, pilot):
        await press(pilot, "l")
        check_snapshot("no-log-80x24", text_of(app))
