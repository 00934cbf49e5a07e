"""The terminal application: wires a desk to the probes screen. `run` is the front door's only entry."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import Screen

from bus.ids import now
from bus.settings import ClientSettings
from tui.desk import BusDesk, Desk
from tui.screens.help import HelpScreen, keys_by_text
from tui.screens.probes import ProbesScreen
from tui.theme import PAINTS_PER_S, PLAIN_THEME, THEME, paints_per_s, wants_no_colour

Clock = Callable[[], datetime]


class ModelForgeApp(App[None]):
    """One screen and what opens over it."""

    TITLE = "modelforge"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", key_display="?", id="app.help"),
        Binding("colon", "command_palette", "commands", key_display=":", id="app.commands"),
        Binding("ctrl+q", "quit", "quit", id="app.quit", priority=True),
    ]

    def __init__(self, desk: Desk, *, clock: Clock = now, paints_per_s: int = PAINTS_PER_S) -> None:
        super().__init__()
        self.desk = desk
        self.clock = clock
        self.paints_per_s = paints_per_s

    async def on_mount(self) -> None:
        """Dress, and open the screen."""
        self._dress()
        await self.push_screen(ProbesScreen(self.desk, self.clock, self.paints_per_s))

    def _dress(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette, without what would break the plain look or writes files."""
        for command in super().get_system_commands(screen):
            if command.title in ("Theme", "Quit"):
                yield command

    async def action_help(self) -> None:
        """Show the keys of the screen below."""
        if isinstance(self.screen, HelpScreen):
            return
        bindings = [binding for _, binding, _, _ in self.screen.active_bindings.values() if binding.id is not None]
        await self.push_screen(HelpScreen(keys_by_text(bindings)))


class PlainApp(ModelForgeApp):
    """Without colours of its own, for NO_COLOR.

    The theme must be the terminal's from the first moment: Textual chooses its colour filter at construction, and a
    later change paints black on black.
    """

    theme: Reactive[str] = Reactive(PLAIN_THEME)

    def _dress(self) -> None:
        """Keep the terminal's own colours."""

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """No change of theme here."""
        return (command for command in super().get_system_commands(screen) if command.title != "Theme")


def make_app(desk: Desk, environment: Mapping[str, str], *, clock: Clock = now) -> ModelForgeApp:
    """The application for this terminal."""
    kind = PlainApp if wants_no_colour(environment) else ModelForgeApp
    return kind(desk, clock=clock, paints_per_s=paints_per_s(environment))


def run(settings: ClientSettings) -> int:
    """Show the screens until the operator leaves; the exit code.

    Raises:
        ModelForgeError: NOT_CONNECTED, AUTH_FAILED, before the terminal was touched.
    """
    return asyncio.run(_run(settings))


async def _run(settings: ClientSettings) -> int:
    desk = await BusDesk.connect(settings)
    try:
        app = make_app(desk, os.environ)
        await app.run_async()
        return app.return_code or 0
    finally:
        await desk.close()
