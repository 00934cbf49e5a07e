"""The table on the terminal and the file beside it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.measure import Row

PACKAGES: Final = ("modelforge", "sentence-transformers", "torch", "transformers")
_HEAD: Final = ("row", "value", "baseline", "ratio", "reach", "spread", "")


def table(rows: Sequence[Row]) -> str:
    """Rows under each other, columns aligned."""
    cells = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{row.value:.2f} {row.unit}",
        f"{row.baseline:.2f} {row.unit}",
        f"{row.ratio:.3f}",
        _limit(row),
        f"{row.spread:.0%}",
        "ok" if row.ok else "MISSED",
    )


def _limit(row: Row) -> str:
    if row.bound is not None:
        return f"{row.bound:g} {row.unit}"
    return f"{row.reach:g}"


def write(path: Path, rows: Sequence[Row], rounds: int) -> None:
    """The rows, and what they were measured on."""
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "rounds": rounds,
        "packages": {name: version(name) for name in PACKAGES},
        "rows": [
            {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(row).items()}
            for row in rows
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
