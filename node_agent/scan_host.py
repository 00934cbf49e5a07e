"""The agent's side of a scan: start its process, listen, bound it, end it, and say what its end was."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, get_args

from adapters.child.environment import child_environment
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import ScanProgress
from bus.messages.blobs import MAX_BLOB_BYTES
from bus.messages.evidence import Layer
from bus.messages.jobs import ScanJob
from bus.text import clean_line
from node_agent.artifact_root import Stamp
from node_agent.byte_words import size_of
from node_agent.child_process import ExitStatus, FreshProcess
from node_agent.child_start import Started, spawn, start
from node_agent.frames import ChildGone
from node_agent.scan_child.marks import Reading, ReadMarks
from node_agent.scan_child.protocol import (
    Part,
    ScanDigests,
    ScanDone,
    ScanFailed,
    ScanFrame,
    ScanOptions,
    ScanPart,
    ScanProgressed,
    ScanStarted,
)
from node_agent.waiting import monotonic_deadline

COMMAND: Final = (sys.executable, "-P", "-m", "node_agent.scan_child")
# A file whose next byte does not come for this long is what holds the scan up.
STALLED_S: Final = 2.0
KILL_S: Final = 10.0
EXIT_S: Final = 5.0
LOG_DRAIN_S: Final = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlace:
    """Where and within which bounds this node's scans run; `command` begins the process."""

    root: Path
    scratch: Path
    threads: int
    memory_limit_bytes: int
    file_cpu_s: int = 20
    command: Sequence[str] = COMMAND


@dataclass(kw_only=True)
class ScanFound:
    """What a scan's process sent: manifest (canonical JSON) and evidence (JSON) as they are to be reported."""

    manifest: bytes
    evidence: bytes
    files_hashed: int
    files_cached: int
    layers: tuple[Layer, ...]


async def run_scan(
    place: ScanPlace,
    job: ScanJob,
    *,
    cache: Path | None,
    progress: Callable[[ScanProgress], None],
    remember: Callable[[Mapping[Stamp, str]], None] = lambda _: None,
    budget_s: float | None = None,
) -> ScanFound:
    """One scan in a process of its own, which has ended in any case when this returns or raises.

    Args:
        place: where.
        job: what.
        cache: folder of the digests that may be trusted; `None`: every byte is read.
        progress: told how far it is; must return at once.
        remember: told the digests of files as they were read to the end, whatever becomes of the scan; must return at
            once.
        budget_s: how long it may take; until the job's deadline when it is left out.

    Raises:
        ModelForgeError: what the scan itself ended with; SCAN_LIMIT_EXCEEDED, naming the file that was being read, when
            its process died, was ended by a bound, or was not done in time; NODE_FAULT when it died before it read a file, or cannot start.
    """
    now_s = asyncio.get_running_loop().time()
    budget_s = monotonic_deadline(job.deadline_at) - now_s if budget_s is None else budget_s
    descriptor = ReadMarks.descriptor(place.threads)
    try:
        marks = ReadMarks(descriptor)
        child = await _start(place, job, cache, descriptor)
    finally:
        os.close(descriptor)
    try:
        async with asyncio.timeout_at(now_s + budget_s):
            return await child.listen(progress, remember, marks)
    except TimeoutError as error:
        raise _not_done(budget_s, marks.longest(), child.newest) from error
    finally:
        # At once: there is nothing that it could tidy up.
        await child.end()
        marks.close()


async def _start(place: ScanPlace, job: ScanJob, cache: Path | None, marks: int) -> _ScanProcess:
    options = ScanOptions(
        parent_pid=os.getpid(),
        marks=marks,
        root=str(place.root),
        path=job.path,
        max_files=job.max_files,
        threads=place.threads,
        memory_limit_bytes=place.memory_limit_bytes,
        cache=str(cache) if cache is not None else "",
        file_cpu_s=place.file_cpu_s,
    )

    async def launch(channel: int, log: int) -> FreshProcess:
        return spawn(
            [*place.command, str(channel), encode(options).decode()],
            log=log,
            keep=(channel, marks),
            environment=child_environment(os.environ, str(place.scratch)),
            folder=place.scratch,
        )

    started: Started[FreshProcess, ScanFrame] = await start(launch, ScanFrame)
    return _ScanProcess(started, job.max_files)


@dataclass
class _ScanProcess:
    started: Started[FreshProcess, ScanFrame]
    max_files: int
    parts: dict[Part, bytearray] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
    newest: ScanProgress | None = None
    digests_told: int = 0

    async def listen(
        self,
        progress: Callable[[ScanProgress], None],
        remember: Callable[[Mapping[Stamp, str]], None],
        marks: ReadMarks,
    ) -> ScanFound:
        while True:
            try:
                frame = await self.started.frames.receive(None)
            except ChildGone as error:
                status = await self.started.process.wait(EXIT_S)
                await self._log_what_it_said()
                raise _died(status, marks) from error
            match frame:
                case ScanStarted():
                    self.layers = frame.layers
                    _say(frame.layers)
                case ScanProgressed():
                    self.newest = frame.progress
                    progress(frame.progress)
                case ScanDigests():
                    remember(self._digests(frame))
                case ScanPart():
                    self._take(frame)
                case ScanFailed():
                    await self._log_what_it_said()
                    raise ModelForgeError.from_failure(frame.failure)
                case ScanDone():
                    return self._found(frame)

    def _digests(self, frame: ScanDigests) -> dict[Stamp, str]:
        self.digests_told += len(frame.rows)
        if self.digests_told > self.max_files:
            raise ModelForgeError(ErrorCode.NODE_FAULT, "the process of the scan told more digests than a set may have")
        return {Stamp(*row[:5]): row[5] for row in frame.rows}

    def _take(self, frame: ScanPart) -> None:
        part = self.parts.setdefault(frame.part, bytearray())
        if len(part) + len(frame.data) > MAX_BLOB_BYTES:
            message = f"the scan's {frame.part} is larger than {MAX_BLOB_BYTES} bytes"
            raise ModelForgeError(ErrorCode.SCAN_TOO_LARGE, message)
        part += frame.data

    def _found(self, done: ScanDone) -> ScanFound:
        if missing := [part for part in get_args(Part) if part not in self.parts]:
            raise ModelForgeError(ErrorCode.NODE_FAULT, f"the process of the scan ended without its {missing[0]}")
        return ScanFound(
            manifest=bytes(self.parts["manifest"]),
            evidence=bytes(self.parts["evidence"]),
            files_hashed=done.files_hashed,
            files_cached=done.files_cached,
            layers=self.layers,
        )

    async def _log_what_it_said(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.started.reader.finished.wait(), LOG_DRAIN_S)
        if text := self.started.log.text().strip():
            _log.warning("the process of a scan said: %s", text)

    async def end(self) -> None:
        await self.started.process.end(0.0, KILL_S)
        self.started.reader.close()
        await self.started.frames.close()


def _died(status: ExitStatus | None, marks: ReadMarks) -> ModelForgeError:
    """The process ended without a word. Whose fault was it?"""
    how = status.text if status is not None else "a closed channel"
    reading = marks.longest()
    if reading is None:
        when = "while it read no file" if marks.ever() else "before it read a file"
        return ModelForgeError(ErrorCode.NODE_FAULT, f"the process of the scan ended with {how} {when}")
    file = clean_line(reading.path)
    if status is not None and status.signal == signal.SIGXCPU:
        message = f"{file}: reading it took more processor time than a scan may use"
    else:
        message = f"the process of the scan ended with {how} while {file} was read"
    return ModelForgeError(ErrorCode.SCAN_LIMIT_EXCEEDED, message, file=file, exit_status=how)


def _not_done(budget_s: float, reading: Reading | None, newest: ScanProgress | None) -> ModelForgeError:
    """A file system that does not answer, or more bytes than can be read in the time of a scan."""
    begin = f"the scan was not done after {budget_s:.0f} s"
    if reading is None:
        return ModelForgeError(ErrorCode.SCAN_LIMIT_EXCEEDED, f"{begin}; no file was being read")
    file = clean_line(reading.path)
    if reading.idle_s >= STALLED_S:
        message = f"{begin}; {file} was being read, without another byte for {reading.idle_s:.0f} s"
        return ModelForgeError(ErrorCode.SCAN_LIMIT_EXCEEDED, message, file=file)
    # No file is to blame: naming one would send an operator to a healthy disk.
    done = "" if newest is None else f" {size_of(newest.bytes_done, newest.bytes_total)} were hashed by then;"
    message = f"{begin};{done} what was read is remembered, and the next scan goes on behind it"
    return ModelForgeError(ErrorCode.SCAN_LIMIT_EXCEEDED, message)


def _say(layers: tuple[Layer, ...]) -> None:
    missing = [f"{layer.name} ({layer.detail})" for layer in layers if not layer.active]
    if missing:
        _log.info("a scan runs without these layers, which this machine refused: %s", "; ".join(missing))
