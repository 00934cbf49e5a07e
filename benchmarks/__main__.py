"""`make bench`: run every row beside its baseline, print the table, write `results/latest.json`.

Exit status 1 when a row does not reach what it is to reach.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import assess, probe, report, scan
from benchmarks.measure import MIN_ROUNDS, Row
from bus.errors import ModelForgeError

RESULTS: Final = Path(__file__).resolve().parent / "results" / "latest.json"
ROUNDS: Final = 5
PARTS: Final = {"assess": assess.rows, "scan": scan.rows, "probe": probe.rows}


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 when every row reaches its reach, 1 when not, the error's own when something failed."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure ModelForge beside its baselines.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least {MIN_ROUNDS}  [{ROUNDS}]")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the rows are written as JSON")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which rows; all of them when none is named")
    options = parser.parse_args(arguments)
    if options.rounds < MIN_ROUNDS:
        parser.error(f"--rounds: at least {MIN_ROUNDS}")
    try:
        with tempfile.TemporaryDirectory(prefix="modelforge-bench-") as scratch:
            rows = asyncio.run(measured(options.parts or list(PARTS), options.rounds, Path(scratch)))
    except ModelForgeError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return int(error.info.exit)
    report.write(options.output, rows, options.rounds)
    print(report.table(rows))
    return 0 if all(row.ok for row in rows) else 1


async def measured(parts: Sequence[str], rounds: int, scratch: Path) -> list[Row]:
    """The rows of these parts, one part after the other.

    Raises:
        ModelForgeError: what a part failed with.
    """
    return [row for part in parts for row in await PARTS[part](rounds, scratch)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
