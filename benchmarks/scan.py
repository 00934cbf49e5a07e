"""A whole scan by the agent's own scan path, in its own process, beside `sha256sum` run in parallel on the same files.

The scan does more than hash: it starts a process without a network, reads every header and document, and looks twice
whether anything changed. The row says what that costs; no digest of an earlier scan is used.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks.measure import BASELINE, Contender, Row, in_turns, row
from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.jobs import ScanJob
from node_agent.scan_host import ScanPlace, run_scan

FOLDER: Final = "mixed"
LARGE: Final = (4, 192 * 1024**2)
SMALL: Final = (1_000, 256 * 1024)
BLOCK_BYTES: Final = 1024**2
MAX_FILES: Final = 10_000
MEMORY_BYTES: Final = 1024**3
LIMIT_S: Final = 300.0
# Files that one `sha256sum` is given: many enough that its start costs nothing, few enough that no core ends alone.
PER_CALL: Final = 8
# At least 80 % of the throughput is at most 125 % of the time.
REACH: Final = 1.25


async def scan(place: ScanPlace) -> float:
    """One scan from the job to its result; seconds.

    Raises:
        ModelForgeError: what the scan failed with; NODE_FAULT when it hashed other files than those, or knew a digest.
    """
    job = ScanJob(
        job_id=ids.new_id(ids.SCAN),
        node="bench",
        path=FOLDER,
        max_files=MAX_FILES,
        deadline_at=ids.now() + timedelta(seconds=LIMIT_S),
        fresh=True,
    )
    began = time.perf_counter()
    found = await run_scan(place, job, cache=None, progress=lambda _: None)
    seconds = time.perf_counter() - began
    if (found.files_hashed, found.files_cached) != (LARGE[0] + SMALL[0], 0):
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"the scan hashed {found.files_hashed} files")
    return seconds


def mixed_folder(folder: Path) -> list[Path]:
    """A few large files and many small ones, of bytes that no file system makes short; the largest first."""
    folder.mkdir()
    draw = random.Random(0)  # noqa: S311 -- the same bytes in every run, nothing secret
    block = draw.randbytes(BLOCK_BYTES)
    paths = []
    for kind, (count, size_bytes) in enumerate((LARGE, SMALL)):
        for number in range(count):
            path = folder / f"{kind}-{number:04}.bin"
            with path.open("wb") as file:
                for offset in range(0, size_bytes, BLOCK_BYTES):
                    file.write(block[: size_bytes - offset])
            paths.append(path)
    return paths


def processors() -> int:
    """How many there are; as many files are read at once, here and there."""
    return os.cpu_count() or 1


async def parallel_sha256sum(paths: list[Path]) -> float:
    """As many `sha256sum` at once as there are processors; seconds.

    Raises:
        ModelForgeError: NODE_FAULT when it fails.
    """
    command = ["xargs", "-0", "-n", str(PER_CALL), "-P", str(processors()), "sha256sum"]
    names = b"\0".join(os.fsencode(path) for path in paths)
    began = time.perf_counter()
    done = await asyncio.to_thread(
        subprocess.run, command, input=names, check=False, stdout=subprocess.PIPE, timeout=LIMIT_S
    )
    seconds = time.perf_counter() - began
    if done.returncode != 0 or done.stdout.count(b"\n") != len(paths):
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"sha256sum ended with {done.returncode}")
    return seconds


async def rows(rounds: int, scratch: Path) -> list[Row]:
    """The row, measured in turns.

    Raises:
        ModelForgeError: what a scan or the baseline failed with.
    """
    root = scratch / "scan"
    root.mkdir()
    paths = mixed_folder(root / FOLDER)
    place = ScanPlace(root=root, scratch=scratch, threads=processors(), memory_limit_bytes=MEMORY_BYTES)
    # One of each that does not count: the files into the page cache.
    await scan(place)
    await parallel_sha256sum(paths)
    runs: dict[str, Contender] = {BASELINE: lambda: parallel_sha256sum(paths), "scan": lambda: scan(place)}
    seconds = await in_turns(runs, rounds, lambda line: print(f"scan: {line}", file=sys.stderr, flush=True))
    return [row("scan, 1 GiB, against sha256sum", seconds["scan"], seconds[BASELINE], REACH)]
