"""The life of a scan's process: put the bounds up, read the folder, send what was found, end (spec P1).

Everything that a stranger wrote is parsed here: no network, no other process, no file to write, bounded memory and
processor time, and an end with the agent's own end.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import Final

from adapters.child import barrier, limits
from adapters.child.channel import Channel, ParentGone
from adapters.child.environment import foreign_names, offline_faults
from adapters.formats.evidence import EvidenceCollector
from bus.codec import encode
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import ScanProgress
from bus.messages.evidence import Layer
from node_agent import hash_cache
from node_agent.artifact_hash import BLOCK_BYTES
from node_agent.artifact_root import Member, Stamp
from node_agent.artifact_scan import Scanned, ScanWatch, scan_folder
from node_agent.pickle_opinions import OpinionHost
from node_agent.scan_child.budget import CpuBudget
from node_agent.scan_child.marks import Reading, ReadMarks
from node_agent.scan_child.protocol import (
    MAX_DIGEST_ROWS,
    MAX_PART_BYTES,
    DigestRow,
    Part,
    ScanDigests,
    ScanDone,
    ScanFailed,
    ScanOptions,
    ScanPart,
    ScanProgressed,
    ScanStarted,
)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_PARENT_GONE: Final = 3
PROGRESS_S: Final = 0.5
# The root, a handle for each level of folders, and a few for each thread.
MAX_DESCRIPTORS: Final = 256


def serve(channel: Channel, options: ScanOptions) -> int:
    """Scan, and report; returns the exit code. Never raises."""
    marks = ReadMarks(options.marks)
    os.close(options.marks)
    try:
        try:
            _send(channel, _guarded(channel, options, marks))
        except ParentGone:
            raise
        except BaseException as error:  # noqa: BLE001 -- the edge of the process: whatever it is becomes a code here
            channel.send(ScanFailed(failure=_typed(error, marks.longest()).to_failure()))
            return EXIT_FAILED
    except ParentGone:
        return EXIT_PARENT_GONE
    return EXIT_OK


def _guarded(channel: Channel, options: ScanOptions, marks: ReadMarks) -> Scanned:
    """The scan, behind its layers."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a Python handler does not run inside one long C call
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(file=2, all_threads=True)
    limits.die_with_parent(options.parent_pid)
    # The host of other scanners has bounds of its own and starts processes: it must be there before this one's stand.
    with OpinionHost() as opinions:
        budget = CpuBudget(options.max_files, options.file_cpu_s)
        keep = {channel.descriptor} if opinions.descriptor is None else {channel.descriptor, opinions.descriptor}
        channel.send(ScanStarted(layers=isolate(keep, options)))
        return _scan(channel, options, _Watch(channel, options.threads, marks, budget), opinions)


def isolate(keep: set[int], options: ScanOptions) -> tuple[Layer, ...]:
    """Put every layer up, and say which of them really stand; the order is the one of a probe's child."""
    layers = [limits.own_session(), limits.close_inherited(keep), limits.no_core_files()]
    faults = [*offline_faults(os.environ), *foreign_names(os.environ)]
    layers.append(Layer(name="scrubbed_environment", active=not faults, detail="; ".join(faults) or "allow-listed"))
    layers.append(barrier.enter_network_namespace())
    layers.append(limits.die_with_parent(options.parent_pid))
    layers.append(limits.limit_memory(options.memory_limit_bytes))
    layers.append(_bound("no_file_written", resource.RLIMIT_FSIZE, 0))
    layers.append(_bound("few_descriptors", resource.RLIMIT_NOFILE, MAX_DESCRIPTORS))
    layers.extend(barrier.install_filter(processes=True))
    return tuple(layers)


def _bound(name: str, what: int, limit: int) -> Layer:
    try:
        resource.setrlimit(what, (limit, limit))
    except (OSError, ValueError) as error:
        return Layer(name=name, active=False, detail=f"{error}")
    return Layer(name=name, active=True, detail=f"{limit}")


class _Watch(ScanWatch):
    """Counts, notes the files that are being read, sets the budget of each step, and tells the agent how far it is."""

    def __init__(self, channel: Channel, threads: int, marks: ReadMarks, budget: CpuBudget) -> None:
        super().__init__(threads)
        self._channel, self._marks, self._budget = channel, marks, budget
        self._lock = threading.Lock()
        self._rows: list[DigestRow] = []
        self._rows_next_s = 0.0
        self._headers_only = True
        self._files = self._total_files = self._bytes = self._total_bytes = 0
        self._next_s = 0.0

    def listed(self, members: tuple[Member, ...], to_hash_bytes: int) -> None:
        self._total_files, self._total_bytes = len(members), to_hash_bytes
        self._budget.listed(len(members), to_hash_bytes)

    def begins(self, member: Member) -> None:
        self._marks.begin(member.path)
        if self._headers_only:
            self._budget.file()

    def hashing(self) -> None:
        self._headers_only = False
        self._files = 0
        self._budget.hashing()

    def remember(self, stamp: Stamp, sha256: str) -> None:
        row = (stamp.device, stamp.inode, stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns, sha256)
        with self._lock:
            self._rows.append(row)
        # One of a large file took its time and may be the last: it does not wait for others.
        self.tell_digests(rest=stamp.size_bytes > BLOCK_BYTES)

    def tell_digests(self, *, rest: bool = False) -> None:
        """Send the digests that wait: twice a second, or all of the `rest` now. A scan that ends loses next to nothing."""
        with self._lock:
            now_s = time.monotonic()
            due = rest or now_s >= self._rows_next_s or len(self._rows) >= MAX_DIGEST_ROWS
            if not self._rows or not due:
                return
            rows, self._rows = tuple(self._rows), []
            self._rows_next_s = now_s + PROGRESS_S
        for begin in range(0, len(rows), MAX_DIGEST_ROWS):
            self._channel.send(ScanDigests(rows=rows[begin : begin + MAX_DIGEST_ROWS]))

    def advance(self, *, files: int = 0, size_bytes: int = 0) -> None:
        if files:
            self._marks.end()
        else:
            self._marks.progress()
        self.tell_digests()
        with self._lock:
            self._files += files
            self._bytes += size_bytes
            now_s = time.monotonic()
            if now_s < self._next_s:
                return
            self._next_s = now_s + PROGRESS_S
            progress = ScanProgress(
                step="headers" if self._headers_only else "hashing",
                files_done=self._files,
                files_total=self._total_files,
                bytes_done=self._bytes,
                bytes_total=self._total_bytes,
            )
        self._channel.send(ScanProgressed(progress=progress))


def _scan(channel: Channel, options: ScanOptions, watch: _Watch, opinions: OpinionHost) -> Scanned:
    channel.send(ScanProgressed(progress=ScanProgress(step="listing")))
    known = hash_cache.read(Path(options.cache)) if options.cache else {}
    try:
        return scan_folder(
            Path(options.root),
            options.path,
            max_files=options.max_files,
            watch=watch,
            known=known,
            collector=lambda: EvidenceCollector(opinions),
        )
    finally:
        watch.tell_digests(rest=True)


def _send(channel: Channel, scanned: Scanned) -> None:
    parts: tuple[tuple[Part, bytes], ...] = (
        ("manifest", canonical_json(scanned.manifest)),
        ("evidence", encode(scanned.evidence)),
    )
    for part, data in parts:
        for begin in range(0, len(data), MAX_PART_BYTES):
            channel.send(ScanPart(part=part, data=data[begin : begin + MAX_PART_BYTES]))
    channel.send(ScanDone(files_hashed=scanned.files_hashed, files_cached=scanned.files_cached))


def _typed(error: BaseException, reading: Reading | None) -> ModelForgeError:
    """Every end as a code; the story of one that is not typed goes to the bounded log."""
    if isinstance(error, ModelForgeError):
        return error
    file = reading.path if reading is not None else ""
    where = f" while {file} was read" if file else ""
    if isinstance(error, MemoryError):
        return ModelForgeError(
            ErrorCode.SCAN_LIMIT_EXCEEDED, f"the scan needed more memory than it may use{where}", file=file
        )
    os.write(2, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
    name = type(error).__name__
    return ModelForgeError(ErrorCode.NODE_FAULT, f"the scan failed with {name}{where}; the agent's log says where")
