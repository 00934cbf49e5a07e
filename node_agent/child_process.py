"""The process behind a child: how it is signalled, how its end is learned, and what the end was.

A fresh interpreter is the agent's own child and reaped here; a forked one is reaped by its template, which tells the
status. Both are named by a pidfd, so that a signal can never reach a stranger that got the same pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from bus.errors import ErrorCode, ModelForgeError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a child ended: an exit code, or a signal, or neither when nobody could tell (its template died).

    `sent_by_us`: had the agent signalled it before it ended? A death by a signal that was not ours is a crash.
    """

    code: int | None = None
    signal: int | None = None
    sent_by_us: bool = False

    @property
    def text(self) -> str:
        """Such as `exit 0` or `signal 9 (SIGKILL)`."""
        if self.code is not None:
            return f"exit {self.code}"
        if self.signal is None:
            return "ended, status unknown"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:
            name = "unnamed"
        return f"signal {self.signal} ({name})"


class ChildProcess(ABC):
    """A running process, led by `pid`, in a session and group of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._signalled = False

    @abstractmethod
    def _send(self, number: int) -> None:
        """Signal the process, and its group where that is safe."""

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if not self._ended.done():
            self._signalled = True
            with contextlib.suppress(ProcessLookupError):
                self._send(number)

    def ended(self, returncode: int | None) -> None:
        """The process was reaped: code, minus signal, or `None` when its status is lost."""
        if not self._ended.done():
            self._ended.set_result(returncode)

    @property
    def status(self) -> ExitStatus | None:
        """The end, once it is known."""
        if not self._ended.done():
            return None
        result = self._ended.result()
        if result is None:
            return ExitStatus(sent_by_us=self._signalled)
        if result < 0:
            return ExitStatus(signal=-result, sent_by_us=self._signalled)
        return ExitStatus(code=result, sent_by_us=self._signalled)

    async def wait(self, timeout_s: float) -> ExitStatus | None:
        """Wait for the end; `None` when it did not come in time."""
        await asyncio.wait((self._ended,), timeout=timeout_s)
        return self.status

    def group_is_gone(self) -> bool:
        """Is the process dead, and nobody alive in its group?

        A child whose template died is reaped by whoever inherits orphans on this machine, perhaps never; dead is dead.
        """
        if not self._ended.done():
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        return not living_members(self.pid)

    async def end(self, grace_s: float, kill_s: float) -> ExitStatus:
        """The kill ladder: SIGTERM, a grace, SIGKILL, reaped.

        Raises:
            ModelForgeError: NODE_FAULT when even SIGKILL did not end it within `kill_s` (a process stuck in the
                kernel).
        """
        status = self.status
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, kill_s)):
            if status is not None:
                return status
            self.signal(number)
            status = await self.wait(patience_s)
        if status is None:
            raise ModelForgeError(ErrorCode.NODE_FAULT, f"the child {self.pid} did not end after SIGKILL")
        return status


def living_members(group: int) -> list[int]:
    """The processes of a process group that are not zombies."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The command's name stands in parentheses and may hold anything; state, parent and group come after it.
            state, _parent, pgrp = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if int(pgrp) == group and state not in {"Z", "X"}:
            found.append(int(folder.name))
    return found


class FreshProcess(ChildProcess):
    """A process that the agent itself started with `start_new_session`."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        super().__init__(popen.pid)
        self._popen = popen
        self._handle = os.pidfd_open(popen.pid)
        asyncio.get_running_loop().add_reader(self._handle, self._reap)

    def _send(self, number: int) -> None:
        os.killpg(self.pid, number)  # not reaped yet, so the group's name is still this one's

    def _reap(self) -> None:
        """End what is left of the group while the dead leader still holds its name, then reap the leader."""
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.ended(self._popen.wait())


class ForkedProcess(ChildProcess):
    """A process that a template forked; the template ends its group and reaps it."""

    def __init__(self, pid: int, handle: int) -> None:
        super().__init__(pid)
        self._handle = handle

    def _send(self, number: int) -> None:
        signal.pidfd_send_signal(self._handle, number)

    def ended(self, returncode: int | None) -> None:
        """See `ChildProcess.ended`; the handle is given back."""
        if not self._ended.done():
            os.close(self._handle)
        super().ended(returncode)

    def die_with_template(self) -> None:
        """Make sure of the end that the kernel gives to a child whose template died; it is not one that we asked for."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                self._send(signal.SIGKILL)

    async def vanished(self, timeout_s: float) -> None:
        """Wait until the kernel says that the process is gone, without its reaper; its status is lost.

        Raises:
            ModelForgeError: NODE_FAULT when it is still there after `timeout_s`.
        """
        if self._ended.done():
            return
        loop = asyncio.get_running_loop()
        seen = asyncio.Event()
        loop.add_reader(self._handle, seen.set)
        try:
            await asyncio.wait_for(seen.wait(), timeout_s)
        except TimeoutError as error:
            raise ModelForgeError(ErrorCode.NODE_FAULT, f"the child {self.pid} outlived its template") from error
        finally:
            loop.remove_reader(self._handle)
        self.ended(None)
