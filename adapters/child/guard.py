"""The guard: it refuses every IP connection inside the process, and files that are not the model's (spec P11, P5).

It is the evidence, not the barrier: it sees what Python code does and names it, the kernel layers stop the rest.
Two rules come from measured behaviour of the hub clients. The refusal is a `BaseException`, because an OSError is
retried with back-off for up to a minute and ends as "could not connect". And each attempt is handed to the sink
before the exception is raised, because a library may swallow whatever it gets.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from adapters.child.file_rules import FileRules
from adapters.child.protocol import FILE_CALL, FILE_FAMILY, PROCESS_FAMILY

MAX_REPORTED: Final = 64

_ALLOWED_FAMILIES: Final = frozenset({int(socket.AF_UNIX), -1})  # -1: the family of a descriptor that exists already
_FAMILY_NAMES: Final = {
    int(socket.AF_INET): "inet",
    int(socket.AF_INET6): "inet6",
    int(socket.AF_PACKET): "raw",
    int(socket.AF_NETLINK): "netlink",
}
_ON_SOCKET: Final = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_NAMES: Final = frozenset(
    {
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.gethostbyaddr",
        "socket.getnameinfo",
    }
)
_PROCESSES: Final = frozenset(
    {
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "pty.spawn",
    }
)

Sink = Callable[[str, str], None]


class GuardRefusal(BaseException):
    """A network call was refused. Not an `Exception`, so that no library retries or swallows it."""


class Guard:
    """The state behind the audit hook; one per process, because a hook can never be taken off.

    Attributes:
        network_attempts: refused network calls so far.
        process_attempts: refused attempts to start another process so far.
        file_attempts: refused attempts to open a file outside the rules so far.
    """

    def __init__(self, sink: Sink, *, processes: bool) -> None:
        self._sink = sink
        self._processes = processes
        self._lock = threading.Lock()
        self._files: FileRules | None = None
        self.network_attempts = self.process_attempts = self.file_attempts = 0

    def retarget(self, sink: Sink, *, processes: bool) -> None:
        """Start anew in a forked child: its own channel, its own counts, and no more processes."""
        self._sink, self._processes = sink, processes
        self._lock = threading.Lock()
        self._files = None
        self.network_attempts = self.process_attempts = self.file_attempts = 0

    def confine(self, files: FileRules) -> None:
        """From now on refuse to open what `files` does not allow."""
        self._files = files

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook.

        Raises:
            GuardRefusal: for the network.
            PermissionError: for a process or a file, as the kernel does.
        """
        if event == "open":
            if self._files is not None and self._files.refuses(arguments[0], int(arguments[2])):
                self._record(FILE_CALL, FILE_FAMILY)
                message = "a file outside the set is refused here"
                raise PermissionError(13, message)
            return
        if event in _PROCESSES:
            if self._processes:
                self._record(event, PROCESS_FAMILY)
                message = "starting a process is refused here"
                raise PermissionError(1, message)
            return
        family = _refused_family(event, arguments)
        if family is not None:
            self._record(event, family)
            raise GuardRefusal(event)

    def _record(self, event: str, family: str) -> None:
        with self._lock:
            if family == PROCESS_FAMILY:
                self.process_attempts += 1
            elif family == FILE_FAMILY:
                self.file_attempts += 1
            else:
                self.network_attempts += 1
            report = self.network_attempts + self.process_attempts + self.file_attempts <= MAX_REPORTED
        if report:
            self._sink(event, family)


def _refused_family(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The family name of a call that is to be refused, `None` for every other event."""
    if event in _NAMES:
        return "name"
    if event == "socket.__new__":
        family, kind = int(arguments[1]), int(arguments[2])
        if family in _ALLOWED_FAMILIES:
            return None
        # The kind may carry flags (non-blocking, close-on-exec) above its low four bits.
        return "raw" if kind & 0xF == socket.SOCK_RAW else _FAMILY_NAMES.get(family, "other")
    if event in _ON_SOCKET:
        family = int(arguments[0].family)
        return None if family in _ALLOWED_FAMILIES else _FAMILY_NAMES.get(family, "other")
    return None


def install(sink: Sink, *, processes: bool) -> Guard:
    """Put the guard on this process, for good. `processes`: also refuse to start processes."""
    guard = Guard(sink, processes=processes)
    sys.addaudithook(guard.hook)
    return guard
