"""The list of probes: formats only the rows that are on the screen, and keeps its cursor on a probe, not on a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from tui.columns import Column, heading_line, layout, row_line
from tui.lines import BLANK, Line
from tui.rows import row_of
from tui.widgets.line_view import LineBar, LineView


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the table shows at one moment."""

    rows: tuple[ProbeView, ...]
    nodes: Mapping[str, NodeView]
    moment: datetime
    cursor: str | None


class ProbeTable(LineView, can_focus=True):
    """Rows of probes under fixed columns; headings are a bar of their own, so that they never scroll away."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "next probe", show=False, id="probes.next"),
        Binding("k,up", "move(-1)", "previous probe", show=False, id="probes.previous"),
        Binding("g,home", "move(-1000000)", "first probe", show=False, id="probes.first"),
        Binding("G,end", "move(1000000)", "last probe", show=False, id="probes.last"),
        Binding("pagedown", "page(1)", "page down", show=False, id="probes.page-down"),
        Binding("pageup", "page(-1)", "page up", show=False, id="probes.page-up"),
    ]

    class Moved(Message):
        """The operator moves the cursor by so many rows."""

        def __init__(self, steps: int) -> None:
            self.steps = steps
            super().__init__()

    class Picked(Message):
        """The operator points at a row."""

        def __init__(self, probe_id: str) -> None:
            self.probe_id = probe_id
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 -- Textual's name
        super().__init__(id=id)
        self._table: Table | None = None
        self._index: int | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that fit."""
        return layout(self.size.width)

    @property
    def line_count(self) -> int:
        """One line for each probe."""
        return len(self._table.rows) if self._table else 0

    def line_at(self, index: int) -> Line:
        """A row, formatted now: rows that nobody sees cost nothing."""
        if self._table is None or index >= len(self._table.rows):
            return BLANK
        view = self._table.rows[index]
        return row_line(row_of(view, self._table.nodes, self._table.moment), self.columns, chosen=index == self._index)

    def is_chosen(self, index: int) -> bool:
        """The cursor's row."""
        return index == self._index

    def show(self, table: Table) -> None:
        """Show these rows, and keep the cursor's row on the screen."""
        self._table = table
        found = [index for index, view in enumerate(table.rows) if view.id == table.cursor]
        self._index = found[0] if found else None
        self.repaint()
        if self._index is not None:
            self._keep_in_view(self._index)

    def _keep_in_view(self, index: int) -> None:
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if index < top:
            self.scroll_to(y=index, animate=False, immediate=True)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False, immediate=True)

    def action_move(self, steps: int) -> None:
        """Ask for the cursor to move."""
        self.post_message(self.Moved(steps))

    def action_page(self, pages: int) -> None:
        """Ask for the cursor to move by a screenful."""
        self.post_message(self.Moved(pages * max(self.size.height - 1, 1)))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is."""
        index = self.scroll_offset.y + event.y
        if self._table is not None and 0 <= index < len(self._table.rows):
            self.post_message(self.Picked(self._table.rows[index].id))


class ProbeHeading(LineBar):
    """The headings of the table, by its width."""

    def on_resize(self) -> None:
        """Follow the width."""
        self.set_lines([heading_line(layout(self.size.width))])
