"""Small pieces of Markdown that every generated page uses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Final

NOTICE: Final = "<!-- Written by `make docs` from the code. Change the code, not this page. -->"


def page(title: str, *blocks: str) -> str:
    """A whole page: notice, title, blocks with an empty line between them."""
    return "\n\n".join((NOTICE, f"# {title}", *blocks)) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [_row(head), "| " + " | ".join("---" for _ in head) + " |"]
    lines.extend(_row(row) for row in rows)
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in cells) + " |"


def one_line(text: str) -> str:
    """`text` with every run of blanks as one."""
    return " ".join(text.split())


def code(text: object) -> str:
    """`text` in code style."""
    return f"`{text}`"


def summary(thing: object) -> str:
    """The first paragraph of a docstring, on one line; empty when there is none."""
    text = inspect.getdoc(thing) or ""
    return one_line(text.split("\n\n", maxsplit=1)[0])


def anchor(heading: str) -> str:
    """The link target that Markdown viewers give to a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


def mermaid(lines: Iterable[str]) -> str:
    """A mermaid diagram."""
    return "\n".join(("```mermaid", *lines, "```"))
