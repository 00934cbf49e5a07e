"""The detail pane: name and state, phases, and everything that is known about the chosen probe."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical

from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from tui.detail import detail_lines, title_line
from tui.lines import BLANK, Line, Span, Tone, line, span
from tui.widgets.line_view import LineBar, LineReader
from tui.widgets.phase_bar import PhaseBar


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What the pane shows.

    Attributes:
        view: the probe, with evidence where that is known; `None` when the list is empty.
        node: its node, when that is known.
        moment: what open durations are counted to.
        outdated: a later probe passed where this one failed.
        missing: why evidence is not there, when it could be.
        hint: what to say when there is no probe.
    """

    view: ProbeView | None
    moment: datetime
    node: NodeView | None = None
    outdated: bool = False
    missing: str | None = None
    hint: str = ""


class DetailPane(Vertical):
    """Title, phase bar, and a text that scrolls."""

    DEFAULT_CSS = """
    DetailPane {
        & > #detail-title { background: $panel; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 -- Textual's name
        super().__init__(id=id)
        self._detail: Detail | None = None
        self._shown: str | None = None

    def compose(self) -> ComposeResult:
        """The three parts."""
        yield LineBar(id="detail-title")
        yield PhaseBar(id="detail-phases")
        yield LineReader(id="detail-text")

    def show(self, detail: Detail) -> None:
        """Show one probe; another probe than before is shown from its top."""
        self._detail = detail
        reader = self.query_one("#detail-text", LineReader)
        chosen = detail.view.id if detail.view else None
        if chosen != self._shown:
            self._shown = chosen
            reader.scroll_to(y=0, x=0, animate=False, immediate=True)
        self.query_one("#detail-title", LineBar).set_lines([self._title(detail)])
        self.query_one("#detail-phases", PhaseBar).show(detail.view, detail.moment)
        # One cell less, always: a scroll bar that comes must not cut what was wrapped without it.
        reader.set_lines(self._text(detail, reader.outer_size.width - 1))

    def set_stale(self, stale: bool) -> None:  # noqa: FBT001 -- a state, not an option
        """Dim all parts."""
        for part in (LineBar, LineReader):
            for widget in self.query(part):
                widget.set_stale(stale)

    def on_resize(self) -> None:
        """Wrap again for the new width."""
        if self._detail is not None:
            self.call_after_refresh(self.show, self._detail)

    @staticmethod
    def _title(detail: Detail) -> Line:
        return (Span(" ", Tone.TEXT), *title_line(detail.view, detail.node)) if detail.view else BLANK

    @staticmethod
    def _text(detail: Detail, width: int) -> list[Line]:
        if detail.view is None:
            return [line(span(piece, Tone.DIM)) for piece in detail.hint.splitlines()]
        return detail_lines(detail.view, width, outdated=detail.outdated, missing=detail.missing)
