"""Running the terminal application in tests, and reading what it painted as plain text."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from textual.pilot import Pilot

from tests.support.pictures import NOW, FakeDesk
from tui.app import ModelForgeApp, make_app
from tui.screens.probes import ProbesScreen

SNAPSHOTS = Path(__file__).parents[1] / "tui" / "snapshots"
# Set to write the files anew; then look at the difference before it is committed.
UPDATE = "UPDATE_SNAPSHOTS"


@asynccontextmanager
async def running(
    desk: FakeDesk,
    size: tuple[int, int] = (80, 24),
    *,
    clock: Callable[[], datetime] = lambda: NOW,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[ModelForgeApp, Pilot[None]]]:
    """The application over a desk that answers from memory, at one size and one moment."""
    app = make_app(desk, environment or {}, clock=clock)
    app.animation_level = "none"
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot)
        yield app, pilot


async def settled(pilot: Pilot[None]) -> None:
    """Everything has been painted, what painting asked for has been answered, and the answers have been painted."""
    app = pilot.app
    for _ in range(2):
        await pilot.pause()
        for screen in app.screen_stack:
            if isinstance(screen, ProbesScreen):
                screen.paint()
        if asked := [worker for worker in app.workers if worker.group != "watch" and not worker.is_finished]:
            await app.workers.wait_for_complete(asked)
    await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, and wait until the screen shows it."""
    await pilot.press(*keys)
    await settled(pilot)


def text_of(app: ModelForgeApp) -> str:
    """The whole screen as text, without blanks at the ends of lines.

    Textual has no public way to read the screen; the private one is one more reason for its exact pin (ADR 0004).
    """
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def check_snapshot(name: str, text: str) -> None:
    """Compare with the committed file of this name."""
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} differs; look, then set {UPDATE}=1 to accept"
