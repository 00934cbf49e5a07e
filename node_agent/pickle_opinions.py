"""What other scanners think of a pickle: recorded and shown, and never the gate (spec A4).

Each scanner reads foreign bytes with code of its own, so it runs in a process that was forked for one file, under limits
of its own, below a host that is started before the scan's process shuts its doors: behind the filter of a scan nobody
can start a process any more. The scan hands the open file over a socket, and gets the opinions back.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import BinaryIO, Final, Self

from adapters.child.environment import child_environment
from bus.codec import decode
from bus.errors import ModelForgeError
from bus.messages.artifacts import Opinion
from bus.messages.base import Record

TOOLS: Final = ("picklescan", "fickling")
# One file: what a scanner may take, and what the host needs beyond it to end it and to say so.
WALL_S: Final = 20.0
GRACE_S: Final = 5.0
# All files of one scan together.
BUDGET_S: Final = 120.0
MAX_REPLY_BYTES: Final = 64 * 1024
_ANSWER_BYTE: Final = b"?"


class Opinions(Record, frozen=True, kw_only=True):
    """What the host answers for one file."""

    opinions: tuple[Opinion, ...]


def installed() -> dict[str, str]:
    """The scanners that are installed here, with their versions; none of them is imported for that."""
    return {tool: importlib.metadata.version(tool) for tool in TOOLS if importlib.util.find_spec(tool) is not None}


class OpinionHost:
    """The host process, from the side of the scan. Call it with an open file.

    Attributes:
        descriptor: the socket to the host, which the scan's process must keep; `None` when no scanner is installed.
    """

    def __init__(self, *, budget_s: float = BUDGET_S, wall_s: float = WALL_S) -> None:
        """Start the host, if there is a scanner. `budget_s`: for all files; `wall_s`: for one."""
        self._versions = installed()
        self._budget_s = budget_s
        self._wall_s = wall_s
        self._lost = ""
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if self._versions:
            self._start()

    @property
    def descriptor(self) -> int | None:
        """The number of the socket, as long as there is one."""
        return None if self._socket is None else self._socket.fileno()

    def __enter__(self) -> Self:
        """The host runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the host."""
        self.close()

    def __call__(self, file: BinaryIO) -> tuple[Opinion, ...]:
        """The opinions on an open file. Never raises."""
        if not self._versions:
            return ()
        if self._socket is None:
            return self._unavailable(self._lost)
        if self._budget_s <= 0:
            return self._unavailable("not asked: the scan has used up its time for other scanners")
        began_s = time.monotonic()
        try:
            return self._ask(self._socket, file)
        except (OSError, ValueError, ModelForgeError) as error:
            return self._unavailable(f"its process could not be asked ({type(error).__name__})")
        finally:
            self._budget_s -= time.monotonic() - began_s

    def close(self) -> None:
        """End the host and wait for its end."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "node_agent.opinion_host"]
        options = [str(os.getpid()), str(theirs.fileno()), str(self._wall_s), *self._versions]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*command, *options],
                    pass_fds=(theirs.fileno(),),
                    env=child_environment(os.environ, os.devnull),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            self._lost = f"its process could not be started: {error.strerror or error}"
            return
        self._socket = ours

    def _ask(self, host: socket.socket, file: BinaryIO) -> tuple[Opinion, ...]:
        socket.send_fds(host, [_ANSWER_BYTE], [file.fileno()])
        poll = select.poll()
        poll.register(host, select.POLLIN)
        if not poll.poll((self._wall_s + GRACE_S) * 1000):
            return self._lose("its process did not answer in time")
        reply = host.recv(MAX_REPLY_BYTES)
        if not reply:
            return self._lose("its process has ended")
        return decode(reply, Opinions).opinions

    def _lose(self, reason: str) -> tuple[Opinion, ...]:
        """Nothing more can be asked: a late answer would be taken for the one about the next file."""
        self._lost = reason
        self.close()
        return self._unavailable(reason)

    def _unavailable(self, reason: str) -> tuple[Opinion, ...]:
        return tuple(
            Opinion(tool=tool, version=version, verdict="unavailable", detail=reason)
            for tool, version in self._versions.items()
        )
