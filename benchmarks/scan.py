"""A whole scan by the agent's own scan path, in its own process, beside programs that only hash, in parallel.

The scan does more than hash: it starts a process without a network, reads every header and document, and looks twice
whether anything changed. The rows say what that costs; no digest of an earlier scan is used.

`sha256sum` is the promised baseline. Many builds of it do without the processor's SHA instructions, which the scan has
by OpenSSL; so `openssl dgst` over the same files in the same rounds says what the scan itself loses.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks.measure import Contender, Row, in_turns, row, shown_row
from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.jobs import ScanJob
from node_agent.scan_host import ScanPlace, run_scan

LARGE: Final = (4, 192 * 1024**2)
SMALL: Final = (1_000, 256 * 1024)
# Each processor is given so many large files: enough work that the start of a process is little beside it.
LARGE_PER_PROCESSOR: Final = 8
BLOCK_BYTES: Final = 1024**2
MAX_FILES: Final = 10_000
MEMORY_BYTES: Final = 1024**3
LIMIT_S: Final = 300.0
# A call of a baseline is given so many files that its start costs little, and so few that no processor ends alone.
CALLS_PER_PROCESSOR: Final = 8
# At least 80 % of the throughput is at most 125 % of the time.
REACH: Final = 1.25
SHA256SUM: Final = ("sha256sum",)
OPENSSL: Final = ("openssl", "dgst", "-sha256", "-r")
PLAIN_NOTE: Final = (
    "most builds of sha256sum do without the processor's SHA instructions; the scan and openssl use them"
)
MIXED_NOTE: Final = (
    "no promise: the scan's process starts first, and one thread reads and hashes the files of up to 1 MiB; "
    "the more processors, the larger that part"
)


@dataclass(frozen=True, slots=True)
class Folder:
    """Files below the root of the scans, the largest first."""

    path: Path
    files: list[Path]


async def scan(place: ScanPlace, folder: Folder) -> float:
    """One scan from the job to its result; seconds.

    Raises:
        ModelForgeError: what the scan failed with; NODE_FAULT when it hashed other files than those, or knew a digest.
    """
    job = ScanJob(
        job_id=ids.new_id(ids.SCAN),
        node="bench",
        path=folder.path.name,
        max_files=MAX_FILES,
        deadline_at=ids.now() + timedelta(seconds=LIMIT_S),
        fresh=True,
    )
    began = time.perf_counter()
    found = await run_scan(place, job, cache=None, progress=lambda _: None)
    seconds = time.perf_counter() - began
    if (found.files_hashed, found.files_cached) != (len(folder.files), 0):
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"the scan hashed {found.files_hashed} files")
    return seconds


def mixed_folder(path: Path) -> Folder:
    """A few large files and many small ones, of bytes that no file system makes short."""
    path.mkdir()
    draw = random.Random(0)  # noqa: S311 -- the same bytes in every run, nothing secret
    block = draw.randbytes(BLOCK_BYTES)
    files = []
    for kind, (count, size_bytes) in enumerate((LARGE, SMALL)):
        for number in range(count):
            file = path / f"{kind}-{number:04}.bin"
            with file.open("wb") as opened:
                for offset in range(0, size_bytes, BLOCK_BYTES):
                    opened.write(block[: size_bytes - offset])
            files.append(file)
    return Folder(path, files)


def large_folder(path: Path, mixed: Folder) -> Folder:
    """`LARGE_PER_PROCESSOR` large files for each processor: further names of those of the mixed folder.

    They cost no disk and no page cache, and each name is read to its end by all alike.
    """
    path.mkdir()
    files = [path / f"{number:04}.bin" for number in range(LARGE_PER_PROCESSOR * processors())]
    for number, file in enumerate(files):
        file.hardlink_to(mixed.files[number % LARGE[0]])
    return Folder(path, files)


def tiny_folder(path: Path) -> Folder:
    """One file of 16 bytes: what is measured is all that a scan does besides."""
    path.mkdir()
    file = path / "tiny.bin"
    file.write_bytes(bytes(16))
    return Folder(path, [file])


def processors() -> int:
    """How many there are; as many files are read at once, here and there."""
    return os.cpu_count() or 1


def dealt(files: Sequence[Path], calls: int) -> tuple[list[Path], int]:
    """The files dealt out to so many calls, call after call, and how many each call has.

    The largest come first in `files` and go to different calls, so that the baseline does not wait for one of them.
    """
    calls = min(calls, len(files))
    return [file for call in range(calls) for file in files[call::calls]], -(-len(files) // calls)


async def in_parallel(program: Sequence[str], folder: Folder) -> float:
    """As many of a program that hashes its arguments as there are processors; seconds.

    Raises:
        ModelForgeError: NODE_FAULT when it fails.
    """
    files, per_call = dealt(folder.files, CALLS_PER_PROCESSOR * processors())
    command = ["xargs", "-0", "-n", str(per_call), "-P", str(processors()), *program]
    names = b"\0".join(os.fsencode(file) for file in files)
    began = time.perf_counter()
    done = await asyncio.to_thread(
        subprocess.run, command, input=names, check=False, stdout=subprocess.PIPE, timeout=LIMIT_S
    )
    seconds = time.perf_counter() - began
    if done.returncode != 0 or done.stdout.count(b"\n") != len(files):
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"{program[0]} ended with {done.returncode}")
    return seconds


async def rows(rounds: int, scratch: Path) -> list[Row]:
    """The rows, measured in turns; those against `openssl` only where there is one.

    Raises:
        ModelForgeError: what a scan or a baseline failed with.
    """
    root = scratch / "scan"
    root.mkdir()
    mixed, tiny = mixed_folder(root / "mixed"), tiny_folder(root / "tiny")
    large = large_folder(root / "large", mixed)
    place = ScanPlace(root=root, scratch=scratch, threads=processors(), memory_limit_bytes=MEMORY_BYTES)
    runs: dict[str, Contender] = {
        "sha256sum": lambda: in_parallel(SHA256SUM, mixed),
        "scan": lambda: scan(place, mixed),
        "tiny scan": lambda: scan(place, tiny),
    }
    if shutil.which(OPENSSL[0]) is not None:
        runs["openssl"] = lambda: in_parallel(OPENSSL, mixed)
        runs["large openssl"] = lambda: in_parallel(OPENSSL, large)
        runs["large scan"] = lambda: scan(place, large)
    else:
        _tell("no openssl here: the rows against it are left out")
    return judged(await in_turns(runs, rounds, _tell))


def judged(seconds: dict[str, list[float]]) -> list[Row]:
    """The rows of what was measured."""
    mixed = "scan, 1 GiB in 1,004 files"
    found = [row(f"{mixed}, against sha256sum", seconds["scan"], seconds["sha256sum"], REACH, note=PLAIN_NOTE)]
    if "openssl" in seconds:
        large = f"scan, {LARGE_PER_PROCESSOR * processors()} files of 192 MiB, against openssl"
        found += [
            row(f"{mixed}, against openssl", seconds["scan"], seconds["openssl"], None, note=MIXED_NOTE),
            row(large, seconds["large scan"], seconds["large openssl"], REACH),
        ]
    return [
        *found,
        shown_row("scan, one file of 16 bytes: what every scan costs before it hashes", seconds["tiny scan"]),
    ]


def _tell(line: str) -> None:
    print(f"scan: {line}", file=sys.stderr, flush=True)
