"""The question before a cancel: it stands on No, Enter alone never confirms, and a part of the id must be typed.

A reason may follow; what it says is kept and audited by the controller.
"""

from __future__ import annotations

from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from bus.messages.gates import ProbeView
from bus.text import clean_line
from tui.actions import challenge
from tui.lines import BLANK, Line, Span, Tone, line, paragraph, span
from tui.model import GLYPHS, TONES
from tui.widgets.line_view import LineBar

_WIDTH: Final = 62  # inside the frame and its padding
MAX_REASON_CHARS: Final = 200
_NO: Final = "No, let it run"
_YES: Final = "Cancel the probe"


class CancelScreen(ModalScreen[str | None]):
    """Ends with the reason, which may be empty, when the operator means it; else with `None`."""

    CSS = """
    CancelScreen {
        align: center middle;
        #question { width: 70; height: auto; border: round $warning; padding: 1 2; background: $surface; }
        #question LineBar { height: 10; }
        #answers { height: auto; align-horizontal: right; }
        #reason { height: 1; border: none; padding: 0; margin: 0 0 1 0; background: $boost; }
        #reason:disabled { display: none; }
        Button { margin: 0 0 0 2; }
        Button:focus { text-style: bold reverse; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "no", "no", id="cancel.no"),
        # Tab before anything else takes it; the arrows only where no reason is being written.
        Binding("tab", "other(1)", "the next answer, or the reason", id="cancel.other", priority=True),
        Binding("shift+tab", "other(-1)", "back", id="cancel.back", priority=True),
        Binding("left,right", "answer", "the other answer", id="cancel.answer"),
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
            yield Input(
                id="reason", placeholder="why (may stay empty; it is kept)", max_length=MAX_REASON_CHARS, disabled=True
            )
            with Horizontal(id="answers"):
                yield Button(_label(_NO), id="no")
                yield Button(_label(_YES), id="yes", variant="error", disabled=True)

    def on_mount(self) -> None:
        """Stand on No."""
        self.query_one("#no", Button).focus()
        self._paint()

    def _paint(self) -> None:
        view = self._view
        matches = self._typed == self._wanted
        effect = "enter cancels it" if self.query_one("#yes", Button).has_focus else "enter alone lets it run on"
        lines: list[Line] = [
            line(span("Cancel this probe?", Tone.STRONG)),
            BLANK,
            line(span(view.id, Tone.STRONG), "  ", span(f"{GLYPHS[view.state]} {view.state.value}", TONES[view.state])),
            *paragraph("", f"{view.location} on {view.node}", _WIDTH, indent=0),
            *paragraph("", self._effect, _WIDTH, Tone.WARN, indent=0),
            BLANK,
            line("Type ", span(self._wanted, Tone.STRONG), " to be able to confirm, then tab, then enter:"),
            line(
                span(f"  {self._typed.ljust(len(self._wanted), '_')}", Tone.GOOD if matches else Tone.ACTIVE),
                Span(f"  ✓ matches; {effect}" if matches else "", Tone.GOOD),
            ),
        ]
        self.query_one("#text", LineBar).set_lines(lines)
        self.query_one("#yes", Button).disabled = not matches
        self.query_one("#reason", Input).disabled = not matches

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

    def on_descendant_focus(self) -> None:
        """Mark where enter would go: colours alone do not show it everywhere."""
        for name, text in (("#no", _NO), ("#yes", _YES)):
            button = self.query_one(name, Button)
            button.label = _label(text, chosen=button.has_focus)
        self._paint()

    def action_other(self, steps: int) -> None:
        """Go round No, yes and the reason, as far as they can be chosen."""
        round_: list[Button | Input] = [self.query_one("#no", Button)]
        if self._typed == self._wanted:
            round_ += [self.query_one("#yes", Button), self.query_one("#reason", Input)]
        at = next((index for index, widget in enumerate(round_) if widget.has_focus), 0)
        round_[(at + steps) % len(round_)].focus()

    def action_answer(self) -> None:
        """Go to the other answer, as far as it can be chosen."""
        yes, no = self.query_one("#yes", Button), self.query_one("#no", Button)
        (no if yes.has_focus or yes.disabled else yes).focus()

    @on(Input.Submitted, "#reason")
    def _reason_written(self) -> None:
        """Back to No: enter never leads to a cancel that was not chosen."""
        self.query_one("#no", Button).focus()

    def action_no(self) -> None:
        """Do nothing."""
        _ = self.dismiss(None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer."""
        meant = event.button.id == "yes" and self._typed == self._wanted
        reason = clean_line(self.query_one("#reason", Input).value, MAX_REASON_CHARS).strip()
        _ = self.dismiss(reason if meant else None)


def _label(text: str, *, chosen: bool = False) -> str:
    """An answer, marked when it is the one that enter would give; as wide either way, so that nothing moves."""
    return f"▸ {text}" if chosen else f"  {text}"
