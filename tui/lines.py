"""Lines of text with a tone: what the view-model makes and the widgets draw.

A span is the only thing that is ever painted, and making one cleans its text: whatever a model folder, a log or an
error message holds, no terminal control and no markup reaches the terminal (Textual and Rich pass escape sequences
through and die of a bracket in a plain string).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from bus.text import clean_line

CUT: Final = "…"
# Characters kept for each cell: combining marks take no cell, so cells alone would not bound a line's length.
_CHARS_PER_CELL: Final = 4


class Tone(StrEnum):
    """What a span means; the theme gives it a colour, the text says it in words too."""

    TEXT = "text"
    DIM = "dim"
    STRONG = "strong"
    LABEL = "label"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    ACTIVE = "active"


class Span(NamedTuple):
    """Clean text and its tone; made by `span` and `cell` only."""

    text: str
    tone: Tone


Line = tuple[Span, ...]
BLANK: Final[Line] = ()


def span(text: str, tone: Tone = Tone.TEXT) -> Span:
    """A span of any text."""
    return Span(clean_line(text), tone)


def line(*parts: Span | str) -> Line:
    """A line of spans; a plain string has the tone of text."""
    return tuple(part if isinstance(part, Span) else span(part) for part in parts)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Clean `text` in exactly `width` cells: padded, or cut with a mark that says so."""
    most = max(width, 0) * _CHARS_PER_CELL + 1
    longer, text = len(text) > most, clean_line(text[:most])
    used = cell_len(text)
    if width <= 0:
        return ""
    if longer or used > width:
        text = set_cell_size(text, min(used, width - 1)) + CUT
        used = cell_len(text)
    return " " * (width - used) + text if right else text + " " * (width - used)


def cell(text: str, width: int, tone: Tone = Tone.TEXT, *, right: bool = False) -> Span:
    """A span of exactly `width` cells."""
    return Span(fit(text, width, right=right), tone)


def plain(content: Line) -> str:
    """The text of a line."""
    return "".join(part.text for part in content)


def width_of(content: Line) -> int:
    """How many cells a line takes."""
    return sum(cell_len(part.text) for part in content)


def cut_line(content: Line, width: int) -> Line:
    """The line in at most `width` cells, with a mark at its end when more than blanks had to go."""
    if width <= 0 or cell_len(plain(content).rstrip()) <= width:
        return content
    result: list[Span] = []
    left = width - 1
    for part in content:
        cells = cell_len(part.text)
        if cells > left:
            return (*result, Span(set_cell_size(part.text, left) + CUT, part.tone))
        result.append(part)
        left -= cells
    return tuple(result)


def wrap(text: str, width: int) -> Iterator[str]:
    """`text` in pieces of at most `width` cells, broken at blanks where there are any."""
    width = max(width, 1)
    rest = clean_line(text)
    while cell_len(rest) > width:
        head = _head(rest, width)
        blank = head.rfind(" ")
        end = blank if blank > 0 and rest[len(head) : len(head) + 1] != " " else len(head)
        yield rest[:end].rstrip()
        rest = rest[end:].lstrip()
    yield rest


def _head(text: str, width: int) -> str:
    """The longest beginning of at most `width` cells; at least one character, so that wrapping always ends."""
    used = 0
    for index, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[: max(index, 1)]
    return text


def paragraph(label: str, text: str, width: int, tone: Tone = Tone.TEXT, *, indent: int = 10) -> Iterator[Line]:
    """A label and wrapped text, all lines of the text under each other."""
    for number, piece in enumerate(wrap(text, width - indent)):
        yield (cell(label if number == 0 else "", indent, Tone.LABEL), Span(piece, tone))


def joined(parts: Iterable[Line], separator: str = " · ") -> Line:
    """Lines put behind each other."""
    result: list[Span] = []
    for part in parts:
        if result:
            result.append(Span(separator, Tone.DIM))
        result.extend(part)
    return tuple(result)
