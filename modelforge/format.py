"""Pure text: sizes, durations, ages, tables and cards, aligned and free of colour.

Nothing here knows a terminal. Text that somebody else wrote was cleaned where it entered the product; it is
cleaned once more here, because a file of this product may have been edited by hand.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from bus.text import clean_line

_STEP: Final = 1024
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")
_MS_PER_S: Final = 1_000
_S_PER_MINUTE: Final = 60
_S_PER_HOUR: Final = 3_600
_S_PER_DAY: Final = 86_400
_DIGEST_PREFIX: Final = "sha256:"
NOTHING: Final = "-"
CUT: Final = "…"
MAX_CELL_CHARS: Final = 120
_BELOW: Final = 2


def size(value_bytes: int | None) -> str:
    """Bytes for people: `512 B`, `86.7 MiB`; `-` when unknown."""
    if value_bytes is None:
        return NOTHING
    if abs(value_bytes) < _STEP:
        return f"{value_bytes} B"
    amount, unit = float(value_bytes), ""
    for unit in _UNITS:  # noqa: B007 -- the last unit stands for everything larger
        amount /= _STEP
        if abs(amount) < _STEP:
            break
    return f"{amount:.1f} {unit}"


def duration_ms(value_ms: float | None) -> str:
    """Milliseconds for people: `4.2 ms`, `1.73 s`, `2 min 05 s`; `-` when not measured."""
    if value_ms is None:
        return NOTHING
    if value_ms < _MS_PER_S:
        return f"{value_ms:.1f} ms"
    seconds = value_ms / _MS_PER_S
    if seconds < _S_PER_MINUTE:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), _S_PER_MINUTE)
    return f"{minutes} min {rest:02d} s"


def age(then: datetime | None, now: datetime) -> str:
    """How long ago, coarse: `3 s`, `12 min`, `5 h`, `9 d`; `-` when never."""
    if then is None:
        return NOTHING
    seconds = max(0, int((now - then).total_seconds()))
    if seconds < _S_PER_MINUTE:
        return f"{seconds} s"
    if seconds < _S_PER_HOUR:
        return f"{seconds // _S_PER_MINUTE} min"
    if seconds < _S_PER_DAY:
        return f"{seconds // _S_PER_HOUR} h"
    return f"{seconds // _S_PER_DAY} d"


def moment(value: datetime | None) -> str:
    """RFC 3339, whole seconds, UTC as `Z`."""
    if value is None:
        return NOTHING
    return value.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def short(digest: str | None, length: int = 12) -> str:
    """The first hex digits of a digest, enough to type; `-` when there is none."""
    return digest.removeprefix(_DIGEST_PREFIX)[:length] if digest else NOTHING


def width(text: str) -> int:
    """Columns that `text` takes on a terminal: wide characters count twice, combining ones not at all."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def pad(text: str, columns: int) -> str:
    """`text` followed by as many blanks as it takes."""
    return text + " " * max(0, columns - width(text))


def fit(text: str, columns: int) -> str:
    """`text` cleaned and on one line, in at most `columns` columns; what was cut off leaves a mark."""
    whole = clean_line(text)
    return whole if width(whole) <= columns else f"{_beginning(whole, columns - 1)}{CUT}"


def wrap(text: str, columns: int, *, first: str = "", rest: str = "", lines_max: int | None = None) -> list[str]:
    """`text`, cleaned, in lines of at most `columns` columns: words stay whole where they fit.

    `first` begins the first line and `rest` every other one; more than `lines_max` lines are cut, with a mark.
    """
    lines: list[str] = []
    line, begun = first, False
    for word in clean_line(text).split():
        left = word
        if begun and width(line) + 1 + width(left) <= columns:
            line = f"{line} {left}"
            continue
        if begun:
            lines.append(line)
            line = rest
        while width(line) + width(left) > columns:  # longer than a whole line
            piece = _beginning(left, columns - width(line))
            lines.append(f"{line}{piece}")
            left, line = left[len(piece) :], rest
        line, begun = f"{line}{left}", bool(left)
    if begun or not lines:
        lines.append(line.rstrip())
    if lines_max is None or len(lines) <= lines_max:
        return lines
    return [*lines[: lines_max - 1], _cut(lines[lines_max - 1], columns, width(rest))]


def _cut(line: str, columns: int, prefix: int) -> str:
    """As many whole words of a line as leave room for the mark; a part of one only where that is all there is."""
    piece = _beginning(line, columns - 2)
    if len(piece) < len(line) and line[len(piece)] != " ":
        blank = piece.rfind(" ")
        piece = piece[:blank] if blank > prefix else piece
    return f"{piece.rstrip()} {CUT}"


def _beginning(text: str, columns: int) -> str:
    """As much of the beginning of `text` as `columns` columns hold; one character at least."""
    used = 0
    for index, character in enumerate(text):
        used += width(character)
        if used > columns:
            return text[: max(1, index)]
    return text


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A plain table: one line per row, columns two blanks apart, no rules; the last column is not padded."""
    body = [[_cell(cell) for cell in row] for row in rows]
    lines = [list(headings), *body]
    widths = [max(width(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(pad(cell, columns) for cell, columns in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object) -> str:
    """One cell; what does not fit ends with a mark, so that nobody takes the rest for all."""
    whole = clean_line(str(value), MAX_CELL_CHARS + 1)
    return whole if len(whole) <= MAX_CELL_CHARS else f"{whole[: MAX_CELL_CHARS - 1]}{CUT}"


def card(pairs: Iterable[tuple[str, object]], *, indent: int = 2, columns: int | None = None) -> str:
    """Names and values in two columns; a value of several lines stays in its column.

    `columns`: no line is wider than that, words stay whole; a value with a word that is too long for its column, such
    as a digest, stands below its name.
    """
    items = [(name, str(value)) for name, value in pairs]
    if not items:
        return ""
    names = max(width(name) for name, _ in items)
    lines: list[str] = []
    for name, value in items:
        label = f"{' ' * indent}{pad(name, names)}  "
        for number, part in enumerate(clean_line(part) for part in value.split("\n")):
            lines += _beside(part, label if not number else " " * len(label), indent, columns)
    return "\n".join(lines)


def _beside(part: str, label: str, indent: int, columns: int | None) -> list[str]:
    """One part of a value, beside its name or below it."""
    if columns is None or width(label) + width(part) <= columns:
        return [f"{label}{part}".rstrip()]
    longest = max(width(word) for word in part.split())
    if longest <= columns - width(label):
        return wrap(part, columns, first=label, rest=" " * width(label))
    below = " " * (indent + _BELOW)
    return [*([label.rstrip()] if label.strip() else []), *wrap(part, columns, first=below, rest=below)]


def count(number: int, noun: str) -> str:
    """`1 file`, `3 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
