"""Every key of the screen below, with what it does; made from the bindings themselves, so that it cannot lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from bus.states import ProbeState
from tui.lines import BLANK, Line, Tone, cell, line, span
from tui.model import GLYPHS, TONES
from tui.widgets.line_view import LineReader

_KEY_CELLS: Final = 18
_NAMES: Final = {
    "slash": "/",
    "question_mark": "?",
    "colon": ":",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "escape": "esc",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
}


def keys_by_text(bindings: Iterable[Binding]) -> dict[str, str]:
    """What each key does, with all keys that do it: `next probe` -> `j down`."""
    keys: dict[str, list[str]] = {}
    for binding in bindings:
        names = keys.setdefault(binding.description, [])
        names.extend(name for key in binding.key.split(",") if (name := _NAMES.get(key, key)) not in names)
    return {text: " ".join(names) for text, names in keys.items()}


class HelpScreen(ModalScreen[None]):
    """Keys, and what the marks mean."""

    CSS = """
    HelpScreen {
        align: center middle;
        #help { width: 76; height: 90%; max-height: 44; border: round $primary; padding: 0 1; background: $surface; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "close", "close", id="help.close")]

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys

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
        lines: list[Line] = [line(span("Keys", Tone.STRONG))]
        lines += [line(cell(keys, _KEY_CELLS, Tone.ACTIVE), span(text)) for text, keys in self._keys.items()]
        lines += [BLANK, line(span("Marks", Tone.STRONG))]
        for state in ProbeState:
            lines.append(line(cell(GLYPHS[state], _KEY_CELLS, TONES[state]), span(state.value)))
        lines.append(line(cell("!", _KEY_CELLS, Tone.BAD), span("over budget, or its node is offline")))
        words = "y and Y copy through the terminal (OSC 52), so they work over SSH too."
        return [*lines, BLANK, line(span(words, Tone.DIM))]

    def action_close(self) -> None:
        """Back to the screen below."""
        _ = self.dismiss(None)
