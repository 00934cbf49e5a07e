"""The agent's side of a scan: start its process, listen, bound it, end it, and say what its end was."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, get_args

from adapters.child.environment import child_environment
from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import ScanProgress
from bus.messages.blobs import MAX_BLOB_BYTES
from bus.messages.evidence import Layer
from bus.messages.jobs import ScanJob
from bus.text import clean_line
from node_agent.artifact_root import Stamp
from node_agent.child_log import ChildLog, LogReader
from node_agent.child_process import ExitStatus, FreshProcess
from node_agent.frames import ChildGone, FrameStream
from node_agent.scan_child.protocol import (
    DigestRow,
    LastFile,
    Part,
    ScanDone,
    ScanFailed,
    ScanFrame,
    ScanOptions,
    ScanPart,
    ScanProgressed,
    ScanStarted,
)

COMMAND: Final = (sys.executable, "-P", "-m", "node_agent.scan_child")
BUDGET_S: Final = 3_600.0
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
    digests: Mapping[Stamp, str]
    files_hashed: int
    files_cached: int
    layers: tuple[Layer, ...]


async def run_scan(
    place: ScanPlace,
    job: ScanJob,
    *,
    cache: Path | None,
    progress: Callable[[ScanProgress], None],
    budget_s: float = BUDGET_S,
) -> ScanFound:
    """One scan in a process of its own, which has ended in any case when this returns or raises.

    Args:
        place: where.
        job: what.
        cache: folder of the digests that may be trusted; `None`: every byte is read.
        progress: told how far it is; must return at once.
        budget_s: how long it may take.

    Raises:
        ModelForgeError: what the scan itself ended with; SCAN_LIMIT_EXCEEDED, naming the file that was being read, when
            its process died, was ended by a bound, or was not done in time; NODE_FAULT when it died before it read a file, or cannot start.
    """
    until_s = asyncio.get_running_loop().time() + budget_s
    page = LastFile.descriptor()
    try:
        last = LastFile(page)
        child = await _start(place, job, cache, page)
    finally:
        os.close(page)
    try:
        async with asyncio.timeout_at(until_s):
            return await child.listen(progress, last)
    except TimeoutError as error:
        raise _not_done(budget_s, clean_line(last.read())) from error
    finally:
        # At once: there is nothing that it could tidy up.
        await child.end()
        last.close()


async def _start(place: ScanPlace, job: ScanJob, cache: Path | None, page: int) -> _ScanProcess:
    ours, theirs = socket.socketpair()
    log_reader, log_writer = os.pipe()
    options = ScanOptions(
        parent_pid=os.getpid(),
        page=page,
        root=str(place.root),
        path=job.path,
        max_files=job.max_files,
        threads=place.threads,
        memory_limit_bytes=place.memory_limit_bytes,
        cache=str(cache) if cache is not None else "",
        file_cpu_s=place.file_cpu_s,
    )
    try:
        popen = _spawn(place, options, theirs.fileno(), log_writer)
    except BaseException:
        ours.close()
        os.close(log_reader)
        raise
    finally:
        theirs.close()
        os.close(log_writer)
    process = FreshProcess(popen)
    log = ChildLog()
    reader = LogReader(log_reader, log)
    try:
        frames: FrameStream[ScanFrame] = await FrameStream.open(ours, ScanFrame)
    except BaseException:
        process.signal(signal.SIGKILL)
        reader.close()
        ours.close()
        raise
    return _ScanProcess(process, frames, log, reader)


def _spawn(place: ScanPlace, options: ScanOptions, channel: int, log: int) -> subprocess.Popen[bytes]:
    """The process itself, from the thread of the event loop: the kernel binds the parent-death signal to it."""
    try:
        return subprocess.Popen(  # its bounded life is the caller's duty: `run_scan` ends it
            [*place.command, str(channel), encode(options).decode()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(channel, options.page),
            env=child_environment(os.environ, str(place.scratch)),
            cwd=place.scratch,
            start_new_session=True,
        )
    except OSError as error:
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"no process could be started: {error.strerror}") from error


@dataclass
class _ScanProcess:
    process: FreshProcess
    frames: FrameStream[ScanFrame]
    log: ChildLog
    reader: LogReader
    parts: dict[Part, bytearray] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()

    async def listen(self, progress: Callable[[ScanProgress], None], last: LastFile) -> ScanFound:
        while True:
            try:
                frame = await self.frames.receive(None)
            except ChildGone as error:
                status = await self.process.wait(EXIT_S)
                await self._log_what_it_said()
                raise _died(status, clean_line(last.read())) from error
            match frame:
                case ScanStarted():
                    self.layers = frame.layers
                    _say(frame.layers)
                case ScanProgressed():
                    progress(frame.progress)
                case ScanPart():
                    self._take(frame)
                case ScanFailed():
                    await self._log_what_it_said()
                    raise ModelForgeError.from_failure(frame.failure)
                case ScanDone():
                    return await asyncio.to_thread(self._found, frame)

    def _take(self, frame: ScanPart) -> None:
        part = self.parts.setdefault(frame.part, bytearray())
        if len(part) + len(frame.data) > MAX_BLOB_BYTES:
            message = f"the scan's {frame.part} is larger than {MAX_BLOB_BYTES} bytes"
            raise ModelForgeError(ErrorCode.SCAN_TOO_LARGE, message)
        part += frame.data

    def _found(self, done: ScanDone) -> ScanFound:
        if missing := [part for part in get_args(Part) if part not in self.parts]:
            raise ModelForgeError(ErrorCode.NODE_FAULT, f"the process of the scan ended without its {missing[0]}")
        rows = decode(bytes(self.parts["digests"]), list[DigestRow])
        return ScanFound(
            manifest=bytes(self.parts["manifest"]),
            evidence=bytes(self.parts["evidence"]),
            digests={Stamp(*row[:5]): row[5] for row in rows},
            files_hashed=done.files_hashed,
            files_cached=done.files_cached,
            layers=self.layers,
        )

    async def _log_what_it_said(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.reader.finished.wait(), LOG_DRAIN_S)
        if text := self.log.text().strip():
            _log.warning("the process of a scan said: %s", text)

    async def end(self) -> None:
        await self.process.end(0.0, KILL_S)
        self.reader.close()
        await self.frames.close()


def _died(status: ExitStatus | None, last_file: str) -> ModelForgeError:
    """The process ended without a word. Whose fault was it?"""
    how = status.text if status is not None else "a closed channel"
    if not last_file:
        return ModelForgeError(ErrorCode.NODE_FAULT, f"the process of the scan ended with {how} before it read a file")
    if status is not None and status.signal == signal.SIGXCPU:
        message = f"{last_file}: reading it took more processor time than a scan may use"
    else:
        message = f"the process of the scan ended with {how} while {last_file} was read"
    return ModelForgeError(ErrorCode.SCAN_LIMIT_EXCEEDED, message, file=last_file, exit_status=how)


def _not_done(budget_s: float, last_file: str) -> ModelForgeError:
    """A file system that does not answer, or more bytes than can be read in the time of a scan."""
    where = f"{last_file} was being read" if last_file else "no file was read yet"
    message = f"the scan was not done after {budget_s:.0f} s; {where}"
    return ModelForgeError(ErrorCode.SCAN_LIMIT_EXCEEDED, message, file=last_file)


def _say(layers: tuple[Layer, ...]) -> None:
    missing = [f"{layer.name} ({layer.detail})" for layer in layers if not layer.active]
    if missing:
        _log.info("a scan runs without these layers, which this machine refused: %s", "; ".join(missing))
