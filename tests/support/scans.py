"""Scans in the real process, without a bus: run one, look at it while it runs, or give it a reader that misbehaves."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from bus.codec import decode
from bus.errors import ModelForgeError
from bus.messages.artifacts import Manifest, ScanProgress, SetEvidence
from node_agent.scan_host import ScanFound, run_scan
from tests.support.agent_jobs import scan_job
from tests.support.agents import scan_place
from tests.support.waiting import until

# The scan's own process, whose reader of headers does something else with the files named `evil*`.
_PROGRAM = """
import os, signal, sys, time
from adapters.formats.evidence import EvidenceCollector
from node_agent.scan_child.__main__ import main
plain = EvidenceCollector.add
def add(self, path, file, size_bytes):
    if path.startswith("evil"):
        {body}
    plain(self, path, file, size_bytes)
EvidenceCollector.add = add
os._exit(main(sys.argv[1:]))
"""


# The scan's own process three seconds later: a file that was just made is old enough for it to be remembered.
LATER = (
    sys.executable,
    "-P",
    "-c",
    """
import os, sys, time
now = time.time_ns
time.time_ns = lambda: now() + 3_000_000_000
from node_agent.scan_child.__main__ import main
os._exit(main(sys.argv[1:]))
""",
)


# The scan's own process three seconds later, which does something else when it comes to read on in `stuck*`.
_HASHER = """
import os, signal, sys, time
now = time.time_ns
time.time_ns = lambda: now() + 3_000_000_000
from node_agent import artifact_hash
from node_agent.scan_child.__main__ import main
plain = artifact_hash.read_into
def read_into(fd, member, buffer):
    if member.path.startswith("stuck"):
        {body}
    if member.path.startswith("slow"):
        time.sleep(0.05)
    return plain(fd, member, buffer)
artifact_hash.read_into = read_into
os._exit(main(sys.argv[1:]))
"""


def hasher_that(body: str) -> tuple[str, ...]:
    """The command of a scan that executes `body` when it comes to the bytes of a large file named `stuck*`.

    It hashes files named `slow*` slowly, and runs three seconds later: what was just made may be remembered.
    """
    return (sys.executable, "-P", "-c", _HASHER.format(body=body))


def reader_that(body: str) -> tuple[str, ...]:
    """The command of a scan whose reader executes `body` when it comes to a file named `evil*`."""
    return (sys.executable, "-P", "-c", _PROGRAM.format(body=body))


async def scan(root: Path, folder: str = "model", *, cache: Path | None = None, **options: Any) -> ScanFound:
    """One scan of `root/folder` in a process of its own; `options` are fields of the place, or of the call."""
    found, _ = await scan_seen(root, folder, cache=cache, **options)
    return found


async def scan_seen(
    root: Path, folder: str = "model", *, cache: Path | None = None, **options: Any
) -> tuple[ScanFound, list[ScanProgress]]:
    """As `scan`, with what it told on the way."""
    seen: list[ScanProgress] = []
    job = scan_job(folder, max_files=options.pop("max_files", 1_000))
    budget_s = options.pop("budget_s", 300.0)
    remember = options.pop("remember", lambda _: None)
    place = scan_place(root, **options)
    found = await run_scan(place, job, cache=cache, budget_s=budget_s, progress=seen.append, remember=remember)
    return found, seen


async def refusal(root: Path, folder: str = "model", **options: Any) -> ModelForgeError:
    """What a scan ends with that must fail."""
    try:
        await scan(root, folder, **options)
    except ModelForgeError as error:
        return error
    message = "the scan succeeded"
    raise AssertionError(message)


def manifest_of(found: ScanFound) -> Manifest:
    return decode(found.manifest, Manifest)


def evidence_of(found: ScanFound) -> SetEvidence:
    return decode(found.evidence, SetEvidence)


def scan_processes() -> list[int]:
    """The processes of scans that this process has started, zombies left out."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == os.getpid() and state != "Z" and b"file_cpu_s" in command:
            found.append(int(folder.name))
    return found


async def running(task: asyncio.Task[Any]) -> int:
    """The pid of the one scan that `task` runs, as soon as there is one."""
    await until(lambda: scan_processes() or task.done(), "a scan's process")
    (pid,) = scan_processes()
    return pid
