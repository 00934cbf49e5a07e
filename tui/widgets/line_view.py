"""The base of every widget here: a Line-API view that repaints only the lines that changed.

Textual's DataTable and Static repaint themselves whole for one changed cell (tens of milliseconds each); here a
changed line costs a few, which is what lets the screen follow hundreds of events a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.lines import BLANK, Line, Tone, cut_line, width_of

_DIM = Style(dim=True)


class LineView(ScrollView, can_focus=False):
    """Shows prepared lines, scrolled; `stale` dims everything, because it may no longer be true."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*(f"tone--{tone}" for tone in Tone), "tone--chosen"}
    DEFAULT_CSS = """
    LineView {
        height: 1fr;
        scrollbar-size: 1 1;
        & > .tone--text { color: $foreground; }
        & > .tone--dim { text-style: dim; }
        & > .tone--strong { color: $foreground; text-style: bold; }
        & > .tone--label { color: $secondary; }
        & > .tone--good { color: $success; }
        & > .tone--bad { color: $error; text-style: bold; }
        & > .tone--warn { color: $warning; }
        & > .tone--active { color: $primary; text-style: bold; }
        & > .tone--chosen { background: $panel-lighten-1; text-style: bold; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 -- Textual's name
        super().__init__(id=id, classes=classes)
        self._painted: dict[int, Line] = {}
        self._lines: tuple[Line, ...] = ()
        self._stale = False

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def line_at(self, index: int) -> Line:
        """The content of one line; blank beyond the end."""
        return self._lines[index] if index < len(self._lines) else BLANK

    def is_chosen(self, index: int) -> bool:  # noqa: ARG002 -- the table overrides it
        """Is the line under a cursor?"""
        return False

    def content_width(self) -> int:
        """Cells of the longest line; more than the widget has brings a horizontal scroll bar."""
        return 0

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Show these lines; what did not change is not painted again."""
        self._lines = tuple(lines)
        self.repaint()

    def set_stale(self, stale: bool) -> None:  # noqa: FBT001 -- a state, not an option
        """Dim everything, or show it as present."""
        if stale != self._stale:
            self._stale = stale
            self.refresh()

    def repaint(self) -> None:
        """Compare what is visible with what was painted, and refresh the difference."""
        size = Size(self.content_width(), self.line_count)
        if size != self.virtual_size:
            self.virtual_size = size
        top, width = self.scroll_offset.y, self.size.width
        for y in range(self.size.height):
            content = self.line_at(top + y)
            if self._painted.get(top + y) != content:
                self._painted[top + y] = content
                self.refresh(Region(0, y, width, 1))
        visible = range(top, top + self.size.height)
        self._painted = {index: content for index, content in self._painted.items() if index in visible}

    def render_line(self, y: int) -> Strip:
        """One painted line: tones become styles here and nowhere else."""
        offset_x, offset_y = self.scroll_offset
        width = self.size.width
        base = self.get_component_rich_style("tone--text")  # cached, unlike `rich_style`
        if self._stale:
            base += _DIM
        if self.is_chosen(offset_y + y):
            base += self.get_component_rich_style("tone--chosen", partial=True)
        content = self.line_at(offset_y + y)
        if not self.content_width():  # nobody can scroll to what is beyond the edge: the cut must be seen
            content = cut_line(content, width)
        segments = [
            Segment(part.text, base + self.get_component_rich_style(f"tone--{part.tone}", partial=True))
            for part in content
        ]
        return Strip(segments).crop_extend(offset_x, offset_x + width, base)


class LineBar(LineView):
    """A bar of one or a few fixed lines without scrolling."""

    DEFAULT_CSS = """
    LineBar {
        height: 1;
        overflow: hidden;
    }
    """


class LineReader(LineView, can_focus=True):
    """Wrapped lines to read, with the usual keys."""

    DEFAULT_CSS = """
    LineReader { overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_down", "line down", show=False, id="reader.down"),
        Binding("k,up", "scroll_up", "line up", show=False, id="reader.up"),
        Binding("g,home", "scroll_home", "top", show=False, id="reader.top"),
        Binding("G,end", "scroll_end", "bottom", show=False, id="reader.bottom"),
        Binding("pageup", "page_up", "page up", show=False, id="reader.page-up"),
        Binding("pagedown,space", "page_down", "page down", show=False, id="reader.page-down"),
    ]


class WideReader(LineReader):
    """Lines as they came, scrolled sideways instead of wrapped, so that no column moves."""

    DEFAULT_CSS = """
    WideReader { overflow-x: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h,left", "scroll_left", "left", show=False, id="reader.left"),
        Binding("l,right", "scroll_right", "right", show=False, id="reader.right"),
    ]

    def content_width(self) -> int:
        """The longest line."""
        return max((width_of(content) for content in self._lines), default=0)
