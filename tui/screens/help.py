"""Every key of the screen below, with what it does; made from the bindings themselves, so that it cannot lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from tui.lines import BLANK, Line, Tone, cell, line, span
from tui.widgets.line_view import LineReader

_NAMES = {"slash": "/", "question_mark": "?", "colon": ":", "pagedown": "pgdn", "pageup": "pgup", "escape": "esc"}
_LEGEND = (
    "○ queued  ◔ preparing  ◑ loading  ◕ healthchecking  ● ready  ◒ unloading",
    "✓ completed  ✗ failed  ⊘ cancelled",
)


class HelpScreen(ModalScreen[None]):
    """Keys, and what the marks mean."""

    CSS = """
    HelpScreen {
        align: center middle;
        #help { width: 78; height: 90%; max-height: 34; border: round $primary; padding: 0 1; background: $surface; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "close", "close", id="help.close")]

    def __init__(self, bindings: Iterable[Binding]) -> None:
        super().__init__()
        self._keys = list(bindings)

    def compose(self) -> ComposeResult:
        """One text."""
        with Vertical(id="help"):
            yield LineReader(id="help-text")

    def on_mount(self) -> None:
        """Fill it."""
        text = self.query_one("#help-text", LineReader)
        text.set_lines(self._lines())
        text.focus()

    def _lines(self) -> list[Line]:
        lines: list[Line] = [line(span("Keys", Tone.STRONG)), BLANK]
        for binding in self._keys:
            keys = " ".join(_NAMES.get(key, key) for key in binding.key.split(","))
            lines.append(line(cell(keys, 16, Tone.ACTIVE), span(binding.description)))
        lines += [BLANK, line(span("Marks", Tone.STRONG)), BLANK, *(line(span(text)) for text in _LEGEND)]
        words = "Mouse selection and copying work; over SSH, y and Y copy through the terminal (OSC 52)."
        return [*lines, BLANK, line(span(words, Tone.DIM))]

    def action_close(self) -> None:
        """Back to the screen below."""
        _ = self.dismiss(None)
