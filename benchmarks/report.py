"""The tables on the terminal and the file beside them."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.measure import MAX_SPREAD, Row
from bus.text import clean_line

PACKAGES: Final = ("modelforge", "sentence-transformers", "torch", "transformers")
TOOLS: Final = {"sha256sum": "--version", "openssl": "version"}
_LINE: Final = 112
_RATIOS: Final = ("ratios, of seconds", "ours", "baseline", "ratio", "reach", "spread", "")
_TIMES: Final = ("times, in milliseconds", "ours", "bound", "spread", "")
_WORDS: Final = {"ok": "ok", "missed": "MISSED", "unsteady": "unsteady: run again on a quiet machine", "shown": ""}


def tables(rows: Sequence[Row], rounds: int) -> str:
    """What the words mean, then the rows with a ratio, then those in milliseconds."""
    ratios = [_ratio_cells(row) for row in rows if row.unit == "s"]
    times = [_time_cells(row) for row in rows if row.unit == "ms"]
    parts = [head(rounds)]
    parts += [_aligned((title, *cells)) for title, cells in ((_RATIOS, ratios), (_TIMES, times)) if cells]
    notes = [textwrap.fill(f"{row.name}: {row.note}", _LINE, subsequent_indent="  ") for row in rows if row.note]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def head(rounds: int) -> str:
    """How it was measured, and what each column says."""
    how = (
        f"Ours and its baseline ran in turns on this machine: one round that does not count, then {rounds}; "
        "each figure is the median."
    )
    columns = {
        "ours, baseline": "time for the same work; less is better",
        "ratio": "ours / baseline within a round: 1 is as fast, 0.5 takes half the time; travels between machines",
        "reach": "the largest ratio that is promised, if any; 1.25 in time is 0.8 of the baseline's throughput",
        "bound": "the longest time that is promised, whatever the baseline took; a row without one only informs",
        "spread": f"slowest minus fastest round, as a part of the median; above {MAX_SPREAD:.0%} there is no verdict",
    }
    width = max(len(name) for name in columns)
    return "\n".join([*textwrap.wrap(how, _LINE), *(f"  {name:{width}}  {text}" for name, text in columns.items())])


def _aligned(cells: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _ratio_cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{row.value:.2f} s",
        _number(row.baseline, ".2f", " s"),
        _number(row.ratio, ".3f"),
        _number(row.reach, "g") or "none",
        f"{row.spread:.0%}",
        _WORDS[row.verdict],
    )


def _time_cells(row: Row) -> tuple[str, ...]:
    bound = _number(row.bound, "g", " ms")
    return (row.name, f"{row.value:.1f} ms", bound, f"{row.spread:.0%}", _WORDS[row.verdict])


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"


def tools() -> dict[str, str]:
    """The version of each baseline program that is there, in its own words."""
    found = {}
    for name, asked in TOOLS.items():
        if (program := shutil.which(name)) is not None:
            said = subprocess.run([program, asked], check=False, capture_output=True, text=True, timeout=10.0).stdout
            found[name] = clean_line(said.partition("\n")[0])
    return found


def write(path: Path, rows: Sequence[Row], rounds: int) -> None:
    """The rows, and what they were measured on."""
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "rounds": rounds,
        "tools": tools(),
        "packages": {name: version(name) for name in PACKAGES},
        "rows": [
            {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(row).items()}
            for row in rows
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
