"""The columns of the probe table: fixed by the width of the table, so that no row ever moves another's cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tui.lines import Line, Span, Tone, cell
from tui.rows import ProbeRow

CURSOR_CELLS: Final = 1
_GAP: Final = " "


@dataclass(frozen=True, slots=True)
class Column:
    """A field of `ProbeRow`, its heading and its cells; `right` aligns figures."""

    field: str
    heading: str
    cells: int
    right: bool = False


_BASE: Final = (
    Column("phase", "PHASE", 16),
    Column("id", "PROBE", 14),
    Column("node", "NODE", 10),
    Column("attempt", "TRY", 3, right=True),
    Column("total", "TOTAL", 6, right=True),
    Column("note", "IN PHASE / RESULT", 24),
)
_WIDE: Final = (*_BASE, Column("profile", "PROFILE", 16), Column("location", "LOCATION", 22))
_WIDEST: Final = (
    *_BASE, Column("profile", "PROFILE", 20), Column("location", "LOCATION", 28), Column("digest", "SET", 12),
    Column("queued", "QUEUED", 8), Column("queued_by", "BY", 7),
)  # fmt: skip


def layout(width: int) -> tuple[Column, ...]:
    """The columns for a table of `width` cells: those of 80, 120 or 160."""
    for columns in (_WIDEST, _WIDE):
        if needed(columns) <= width:
            return columns
    return _BASE


def needed(columns: tuple[Column, ...]) -> int:
    """How many cells these columns take, cursor mark and gaps included."""
    return CURSOR_CELLS + sum(column.cells for column in columns) + len(columns) - 1


def heading_line(columns: tuple[Column, ...]) -> Line:
    """The headings."""
    return _spread(" ", [cell(column.heading, column.cells, Tone.LABEL, right=column.right) for column in columns])


def row_line(row: ProbeRow, columns: tuple[Column, ...], *, chosen: bool) -> Line:
    """A row in these columns. The cursor is a mark, not a colour alone."""
    tones = {"phase": row.tone, "note": row.note_tone, "id": Tone.STRONG}
    cells = [
        cell(getattr(row, column.field), column.cells, tones.get(column.field, Tone.TEXT), right=column.right)
        for column in columns
    ]
    return _spread("▌" if chosen else " ", cells)


def _spread(mark: str, cells: list[Span]) -> Line:
    result = [Span(mark, Tone.ACTIVE)]
    for index, part in enumerate(cells):
        if index:
            result.append(Span(_GAP, Tone.TEXT))
        result.append(part)
    return tuple(result)
