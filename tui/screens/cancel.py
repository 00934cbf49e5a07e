"""The question before a cancel: it stands on No, Enter alone never confirms, and a part of the id must be typed."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button

from bus.messages.gates import ProbeView
from tui.actions import challenge
from tui.lines import BLANK, Line, Span, Tone, line, paragraph, span
from tui.model import GLYPHS, TONES
from tui.widgets.line_view import LineBar

_WIDTH: Final = 62  # inside the frame and its padding


class CancelScreen(ModalScreen[str | None]):
    """Ends with the probe's id when the operator means it, else with `None`."""

    CSS = """
    CancelScreen {
        align: center middle;
        #question { width: 70; height: auto; border: round $warning; padding: 1 2; background: $surface; }
        #question LineBar { height: 10; }
        #answers { height: auto; align-horizontal: right; }
        Button { margin: 0 0 0 2; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "no", "no", id="cancel.no"),
        Binding("tab,left,right", "other", "the other answer", id="cancel.other", priority=True),
        Binding("backspace", "erase", "erase", id="cancel.erase"),
    ]

    def __init__(self, view: ProbeView, effect: str) -> None:
        super().__init__()
        self._view = view
        self._effect = effect
        self._wanted = challenge(view.id)
        self._typed = ""

    def compose(self) -> ComposeResult:
        """The question, and two answers; the harmless one is first."""
        with Vertical(id="question"):
            yield LineBar(id="text")
            with Horizontal(id="answers"):
                yield Button("No, let it run", id="no")
                yield Button("Cancel the probe", id="yes", variant="error", disabled=True)

    def on_mount(self) -> None:
        """Stand on No."""
        self.query_one("#no", Button).focus()
        self._paint()

    def _paint(self) -> None:
        view = self._view
        matches = self._typed == self._wanted
        lines: list[Line] = [
            line(span("Cancel this probe?", Tone.STRONG)),
            BLANK,
            line(span(view.id, Tone.STRONG), "  ", span(f"{GLYPHS[view.state]} {view.state.value}", TONES[view.state])),
            *paragraph("", f"{view.location} on {view.node}", _WIDTH, indent=0),
            *paragraph("", self._effect, _WIDTH, Tone.WARN, indent=0),
            BLANK,
            line("Type ", span(self._wanted, Tone.STRONG), " to be able to confirm, then tab to the answer:"),
            line(
                span(f"  {self._typed.ljust(len(self._wanted), '_')}", Tone.GOOD if matches else Tone.ACTIVE),
                Span("  ✓ matches" if matches else "", Tone.GOOD),
            ),
        ]
        self.query_one("#text", LineBar).set_lines(lines)
        self.query_one("#yes", Button).disabled = not matches

    def on_key(self, event: events.Key) -> None:
        """Typed characters go into the challenge, wherever the focus is."""
        character = event.character
        if character is not None and character.isalnum() and len(self._typed) < len(self._wanted):
            self._typed += character.lower()
            self._paint()
            event.stop()

    def action_erase(self) -> None:
        """Take the last character back."""
        self._typed = self._typed[:-1]
        self.query_one("#no", Button).focus()
        self._paint()

    def action_other(self) -> None:
        """Go to the other answer, as far as it can be chosen."""
        yes, no = self.query_one("#yes", Button), self.query_one("#no", Button)
        (no if yes.has_focus or yes.disabled else yes).focus()

    def action_no(self) -> None:
        """Do nothing."""
        _ = self.dismiss(None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer."""
        _ = self.dismiss(self._view.id if event.button.id == "yes" and self._typed == self._wanted else None)
