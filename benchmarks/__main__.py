"""`make bench`: run every row beside its baseline, print the tables, write the rows to a file that git ignores.

`--keep` writes the tracked `results/latest.json` as well. Exit status 1 when a row does not reach what it is to reach;
6 when that cannot be told, because the machine did something else meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import assess, probe, report, scan
from benchmarks.measure import MIN_ROUNDS, Row
from bus.errors import ModelForgeError

RESULTS: Final = Path(__file__).resolve().parent / "results"
LAST: Final = RESULTS / "last-run.json"
KEPT: Final = RESULTS / "latest.json"
ROUNDS: Final = 5
PARTS: Final = {"assess": assess.rows, "scan": scan.rows, "probe": probe.rows}
# None of the command line's own codes.
EXIT_UNSTEADY: Final = 6


def main(arguments: Sequence[str]) -> int:
    """Exit status: see the module; the error's own when something failed."""
    options = _options(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="modelforge-bench-") as scratch:
            rows = asyncio.run(measured(options.parts or list(PARTS), options.rounds, Path(scratch)))
    except ModelForgeError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return int(error.info.exit)
    print(report.tables(rows, options.rounds))
    code = status(rows)
    report.write(options.output, rows, options.rounds)
    print(f"the rows as JSON: {os.path.relpath(options.output)}", file=sys.stderr)
    if options.keep and code == EXIT_UNSTEADY:
        print(f"{KEPT.name} stays as it was: an unsteady row is no result", file=sys.stderr)
    elif options.keep:
        report.write(KEPT, rows, options.rounds)
    return code


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure ModelForge beside its baselines.")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"at least {MIN_ROUNDS}, besides the one that warms up  [{ROUNDS}]"
    )
    parser.add_argument("--output", type=Path, default=LAST, help="where the rows are written as JSON")
    parser.add_argument("--keep", action="store_true", help=f"write results/{KEPT.name} too, which is tracked")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which rows; all of them when none is named")
    options = parser.parse_args(arguments)
    if options.rounds < MIN_ROUNDS:
        parser.error(f"--rounds: at least {MIN_ROUNDS}")
    if options.keep and options.parts:
        parser.error("--keep: only of all parts, or the rows of the others would be lost")
    return options


def status(rows: Sequence[Row]) -> int:
    """1 when a row missed; else `EXIT_UNSTEADY` when one is unsteady, so that a noisy machine fails aloud; else 0."""
    verdicts = {row.verdict for row in rows}
    if "missed" in verdicts:
        return 1
    return EXIT_UNSTEADY if "unsteady" in verdicts else 0


async def measured(parts: Sequence[str], rounds: int, scratch: Path) -> list[Row]:
    """The rows of these parts, one part after the other.

    Raises:
        ModelForgeError: what a part failed with.
    """
    return [row for part in parts for row in await PARTS[part](rounds, scratch)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
