"""The host of other scanners: `python -P -m node_agent.opinion_host PARENT DESCRIPTOR WALL_S TOOL...`.

It forks one process for each scanner and file, ends it in time, and imports no scanner itself. It has no network, and
what it forks cannot start anything.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.metadata
import io
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO, Final, Literal, NamedTuple, cast

from adapters.child import limits, seccomp
from bus.codec import decode, encode
from bus.errors import ModelForgeError
from bus.messages.artifacts import Opinion
from bus.text import clean_line
from node_agent.pickle_opinions import Opinions

CPU_S: Final = 15
DATA_BYTES: Final = 768 * 1024 * 1024
MAX_DETAIL_CHARS: Final = 300
EXIT_FAILED: Final = 1
_MAX_ANSWER_BYTES: Final = 4_096
_MAX_NAMES: Final = 5
_MAX_PICKLES: Final = 64
_MAX_DESCRIPTORS: Final = 32
_LEGACY_TORCH_PICKLES: Final = 5
_NUMPY: Final = b"\x93NUMPY"
_ZIP: Final = b"PK"

_Verdict = Literal["clean", "suspicious", "dangerous"]


class Answer(NamedTuple):
    """What one scanner says."""

    verdict: _Verdict
    detail: str


class Shared(io.RawIOBase):
    """A file that several processes read through one descriptor, each at a position of its own."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._at = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read anywhere."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from here on."""
        data = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go somewhere else."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._descriptor).st_size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "a position before the beginning")
        self._at = base + offset
        return self._at


def ask_picklescan(file: BinaryIO) -> Answer:
    """Its own rules: names on its list are dangerous, unknown names suspicious."""
    scanner = importlib.import_module("picklescan.scanner")
    head = file.read(len(_NUMPY))
    file.seek(0)
    result = scanner.scan_bytes(file, "file", ".npy" if head == _NUMPY else ".bin")
    found: dict[str, list[str]] = {"dangerous": [], "suspicious": []}
    for name in result.globals:
        found.get(name.safety.value, []).append(f"{name.module}.{name.name}")
    verdicts: tuple[_Verdict, ...] = ("dangerous", "suspicious")
    for verdict in verdicts:
        if found[verdict]:
            return Answer(verdict, ", ".join(sorted(set(found[verdict]))[:_MAX_NAMES]))
    if result.scan_err:
        return Answer("suspicious", "it could not read everything")
    return Answer("clean", "it found no name on its lists" if result.scanned_files else "it saw no pickle in the file")


def ask_fickling(file: BinaryIO) -> Answer:
    """Its severity, from likely safe to overtly malicious, the worst of all pickles in the file."""
    analysis = importlib.import_module("fickling.analysis")
    head = file.read(len(_ZIP))
    file.seek(0)
    severities = _fickling_zip(file) if head == _ZIP else _fickling_stream(file)
    if not severities:
        return Answer("clean", "it saw no pickle in the file")
    worst = max(severities)
    if worst == analysis.Severity.LIKELY_SAFE:
        return Answer("clean", worst.message)
    return Answer("suspicious" if worst < analysis.Severity.LIKELY_UNSAFE else "dangerous", worst.message)


def _fickling_zip(file: BinaryIO) -> list[Any]:
    loader = importlib.import_module("fickling.loader")
    return [result.severity for result in loader.scan_zip_archive(file, graceful=True).values()]


def _fickling_stream(file: BinaryIO) -> list[Any]:
    analysis, fickle = importlib.import_module("fickling.analysis"), importlib.import_module("fickling.fickle")
    severities = []
    for number in range(_MAX_PICKLES):
        try:
            pickled = fickle.Pickled.load(file, fail_on_decode_error=False)
        except fickle.EmptyPickleError:
            break
        if not len(pickled):
            break
        if pickled.has_invalid_opcode:
            # Behind the five pickles of torch's old format there are raw storages.
            if number < _LEGACY_TORCH_PICKLES:
                severities.append(analysis.Severity.SUSPICIOUS)
            break
        severities.append(analysis.check_safety(pickled).severity)
    return severities


_TOOLS: Final[dict[str, Callable[[BinaryIO], Answer]]] = {"picklescan": ask_picklescan, "fickling": ask_fickling}


def helper(tool: str, descriptor: int, pipe: int, parent: int) -> int:
    """The life of a forked process: bounds, one scanner, one file, one line. Returns the exit code."""
    version = importlib.metadata.version(tool)  # later there may be no descriptor left to read it with
    try:
        limits.die_with_parent(parent)
        # At the soft bound the signal names itself, at the hard one it would be any SIGKILL.
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
        for what, bound in (
            (resource.RLIMIT_DATA, DATA_BYTES),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS),
        ):
            resource.setrlimit(what, (bound, bound))
        seccomp.install(processes=True)
        answer = _TOOLS[tool](cast("BinaryIO", io.BufferedReader(Shared(descriptor))))
        opinion = _opinion(tool, version, answer.verdict, answer.detail)
    except BaseException as error:  # noqa: BLE001 -- the edge of a process; a scanner may raise anything
        opinion = _opinion(tool, version, "unavailable", f"it ended in {type(error).__name__}")
    os.write(pipe, encode(opinion)[:_MAX_ANSWER_BYTES])
    return 0


def _opinion(tool: str, version: str, verdict: _Verdict | Literal["unavailable"], detail: str) -> Opinion:
    return Opinion(tool=tool, version=version, verdict=verdict, detail=clean_line(detail, MAX_DETAIL_CHARS))


def _unavailable(tool: str, reason: str) -> Opinion:
    return _opinion(tool, importlib.metadata.version(tool), "unavailable", reason)


class Helper:
    """A forked process, seen from the host."""

    def __init__(self, tool: str, descriptor: int) -> None:
        """Fork it. Raises OSError."""
        self.tool = tool
        self.pipe, theirs = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = EXIT_FAILED
            try:
                code = helper(tool, descriptor, theirs, parent)
            finally:
                os._exit(code)  # whatever happens: nothing of the host runs twice
        os.close(theirs)

    def opinion(self, until_s: float) -> Opinion:
        """What it says until then (`time.monotonic`); it is ended and reaped in any case."""
        answer = b""
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        timed_out = not poll.poll(max(0.0, until_s - time.monotonic()) * 1000)
        if not timed_out:
            answer = os.read(self.pipe, _MAX_ANSWER_BYTES)
        os.close(self.pipe)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, signal.SIGKILL)
        _pid, status = os.waitpid(self.pid, 0)
        if answer:
            return _received(self.tool, answer)
        if timed_out:
            return _unavailable(self.tool, "it took too long")
        return _unavailable(self.tool, f"its process ended: {_how(status)}")


def _received(tool: str, answer: bytes) -> Opinion:
    """What a process said that has read a hostile file: decoded, and about its own tool only."""
    try:
        opinion = decode(answer, Opinion)
    except ModelForgeError:
        return _unavailable(tool, "its process gave no answer that can be read")
    return _opinion(tool, importlib.metadata.version(tool), opinion.verdict, opinion.detail)


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "it took too much processor time" if number == signal.SIGXCPU else f"signal {number}"
    return f"exit {os.waitstatus_to_exitcode(status)}"


def answer_for(descriptor: int, tools: list[str], wall_s: float) -> Opinions:
    """The opinions of all these scanners on one open file, at the same time."""
    until_s = time.monotonic() + wall_s
    opinions: list[Opinion] = []
    helpers: list[Helper] = []
    for tool in tools:
        try:
            helpers.append(Helper(tool, descriptor))
        except OSError as error:
            opinions.append(_unavailable(tool, f"no process could be started: {error.strerror or error}"))
    opinions.extend(started.opinion(until_s) for started in helpers)
    return Opinions(opinions=tuple(opinions))


def main(arguments: list[str]) -> int:
    """Answer until the other side closes its end; returns the exit code."""
    parent, number, wall_s, *tools = arguments
    limits.die_with_parent(int(parent))
    limits.no_core_files()
    seccomp.install(processes=False)
    limits.die_with_parent(int(parent))
    with socket.socket(fileno=int(number)) as asked:
        while True:
            data, descriptors, _flags, _address = socket.recv_fds(asked, 1, 1)
            if not data:
                return 0
            for descriptor in descriptors:
                try:
                    asked.send(encode(answer_for(descriptor, tools, float(wall_s))))
                finally:
                    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
