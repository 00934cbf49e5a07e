"""Named queries: SQL lives in `queries/*.sql`, each statement under a line `-- name: NAME`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^--\s*name:\s*([a-z][a-z0-9_]*)\s*$")


def parse(file: str, text: str) -> dict[str, str]:
    """The statements of one file as `file.name` -> SQL.

    Raises:
        ValueError: for SQL before the first name, a name given twice, or a name without a statement.
    """
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        match = _NAME.match(line)
        if match is not None:
            name = f"{file}.{match.group(1)}"
            if name in found:
                raise ValueError(f"query {name} is defined twice")
            current = found.setdefault(name, [])
        elif current is not None:
            current.append(line)
        elif line.strip() and not line.startswith("--"):
            raise ValueError(f"{file}.sql begins without a name: {line!r}")
    queries = {name: "\n".join(lines).strip().removesuffix(";") for name, lines in found.items()}
    for name, sql in queries.items():
        if not sql:
            raise ValueError(f"query {name} is empty")
    return queries


@cache
def load() -> Mapping[str, str]:
    """All queries of the product, read once."""
    queries: dict[str, str] = {}
    folder = files("controller.store").joinpath("queries")
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".sql"):
            queries.update(parse(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8")))
    return queries
