"""The parent side of a child: start it, talk to it, bound it, end it (spec P6).

A `Child` is always ended with `terminate`, also when it has exited by itself: that is what gives its descriptors
back and proves that nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from adapters import registry
from adapters.child.environment import child_environment
from adapters.child.protocol import DownFrame, UpFrame
from adapters.child.template_protocol import ChildOptions
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import StartMethod
from bus.settings import Settings
from node_agent.child_log import ChildLog, LogReader
from node_agent.child_process import ChildProcess, ExitStatus, FreshProcess
from node_agent.child_start import Started, spawn, start
from node_agent.frames import ChildGone, FrameStream
from node_agent.template_host import TemplateHost
from node_agent.template_process import NotForkableError

__all__ = ["Child", "ChildFactory", "ChildGone", "ExitStatus", "WorkerSettings"]

KILL_S: Final = 10.0
LOG_DRAIN_S: Final = 1.0

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class WorkerSettings(Settings, frozen=True, kw_only=True):
    """How children are started.

    Attributes:
        scratch: folder for the templates' temporary files; empty means the platform's own.
        template_idle_s: after this long without a child a template process is ended.
        template_start_s: how long a template may take to import its libraries.
        fork_s: how long a template may take to fork a child.
        test_double: may children run the test double `faulty`? Only tests say yes.
    """

    scratch: str = ""
    template_idle_s: Seconds = 300.0
    template_start_s: Seconds = 120.0
    fork_s: Seconds = 10.0
    test_double: bool = False


class Child:
    """One running child.

    Attributes:
        pid: leader of a session and group of its own.
        start_method: how it was really started, `template` or `fresh`.
        fallback_reason: why it was not started as asked; `None` when it was.
        log: the bounded log of what it prints.
    """

    def __init__(
        self,
        process: ChildProcess,
        frames: FrameStream[UpFrame],
        log: ChildLog,
        reader: LogReader,
        *,
        start_method: StartMethod,
        fallback_reason: str | None,
    ) -> None:
        self._process, self._frames, self._reader = process, frames, reader
        self.pid = process.pid
        self.log = log
        self.start_method: Literal["template", "fresh"] = start_method
        self.fallback_reason = fallback_reason

    async def receive(self, timeout_s: float) -> UpFrame:
        """The next frame. A cancelled or timed out call loses no frame.

        Raises:
            TimeoutError: none came in time.
            ChildGone: the child closed its channel, mostly because it ended.
            ModelForgeError: MALFORMED_MESSAGE, UNKNOWN_KIND or MESSAGE_TOO_LARGE: the child does not keep to the
                protocol; nothing more will come.
        """
        return await self._frames.receive(timeout_s)

    async def send(self, frame: DownFrame) -> None:
        """Send one frame.

        Raises:
            ChildGone: nobody reads any more.
        """
        await self._frames.send(frame)

    async def wait(self, timeout_s: float) -> ExitStatus | None:
        """Wait for the child's own end; `None` when it did not come in time."""
        return await self._process.wait(timeout_s)

    async def terminate(self, grace_s: float) -> ExitStatus:
        """End the child (SIGTERM, `grace_s`, SIGKILL), reap it, drain its log, give everything back.

        May be called again, and on a child that has ended by itself.

        Raises:
            ModelForgeError: NODE_FAULT when not even SIGKILL ended it.
        """
        status = await self._process.end(grace_s, KILL_S)
        # A line that the child wrote just before its end may still be in the pipe.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reader.finished.wait(), LOG_DRAIN_S)
        self._reader.close()
        await self._frames.close()
        return status

    @property
    def gone(self) -> bool:
        """Is it reaped, and nobody left in its process group?"""
        return self._process.group_is_gone()


class ChildFactory:
    """Starts children, and keeps the warm templates that forked ones come from.

    Use it from the thread of the event loop only: the kernel binds a child's parent-death signal to the thread that
    started it. `close` ends the templates.
    """

    def __init__(self, settings: WorkerSettings, *, python: str = sys.executable) -> None:
        self._settings, self._python = settings, python
        self._hosts: dict[str, TemplateHost] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    async def start(
        self,
        adapter: str,
        *,
        start_method: StartMethod,
        scratch: Path,
        memory_limit_bytes: int,
        threads: int,
    ) -> Child:
        """A child that waits for its `Bootstrap`.

        Args:
            adapter: a name of the registry.
            start_method: `template` forks from the warm process, `fresh` starts an interpreter.
            scratch: the one folder in which the child may write; it must exist.
            memory_limit_bytes: bound of its private writable memory.
            threads: how many threads its libraries may use for one operation.

        Raises:
            ModelForgeError: RUNTIME_INCOMPATIBLE for an adapter that cannot be executed, NODE_FAULT when no process
                could be started.
        """
        registry.find(adapter, test_double=self._settings.test_double)
        options = ChildOptions(
            parent_pid=os.getpid(),
            scratch_path=str(scratch),
            memory_limit_bytes=memory_limit_bytes,
            threads=threads,
            test_double=self._settings.test_double,
        )
        reasons: list[str] = []

        async def launch(channel: int, log: int) -> ChildProcess:
            process, reason = await self._launch(adapter, options, start_method, channel, log)
            if reason is not None:
                reasons.append(reason)
            return process

        started: Started[ChildProcess, UpFrame] = await start(launch, UpFrame)
        return Child(
            started.process,
            started.frames,
            started.log,
            started.reader,
            start_method="fresh" if reasons else start_method,
            fallback_reason=reasons[0] if reasons else None,
        )

    async def _launch(
        self, adapter: str, options: ChildOptions, start_method: StartMethod, channel: int, log: int
    ) -> tuple[ChildProcess, str | None]:
        """A process by the wanted way, or a fresh one with the reason why not."""
        if start_method == "fresh":
            return self._spawn(options, channel, log), None
        try:
            return await self._host(adapter).fork(options, channel, log), None
        except NotForkableError as error:
            return self._spawn(options, channel, log), str(error)

    async def warm(self, adapter: str) -> float:
        """Start the template of `adapter` ahead of need; returns the milliseconds that its imports took.

        Raises:
            ModelForgeError: as `start`; NODE_FAULT also when the libraries must not be forked.
        """
        host = self._host(adapter)
        try:
            await host.warm()
        except NotForkableError as error:
            raise ModelForgeError(ErrorCode.NODE_FAULT, str(error)) from error
        return host.import_ms or 0.0

    def template_pid(self, adapter: str) -> int | None:
        """The pid of the warm template, `None` when there is none now."""
        host = self._hosts.get(adapter)
        return host.pid if host is not None else None

    async def close(self) -> None:
        """End every template."""
        hosts, self._hosts = list(self._hosts.values()), {}
        for host in hosts:
            await host.stop()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _host(self, adapter: str) -> TemplateHost:
        registry.find(adapter, test_double=self._settings.test_double)
        if adapter not in self._hosts:
            if self._scratch is None:
                self._scratch = tempfile.TemporaryDirectory(prefix="template-", dir=self._settings.scratch or None)
            self._hosts[adapter] = TemplateHost(
                adapter,
                python=self._python,
                scratch=Path(self._scratch.name),
                start_s=self._settings.template_start_s,
                fork_s=self._settings.fork_s,
                idle_s=self._settings.template_idle_s,
                test_double=self._settings.test_double,
            )
        return self._hosts[adapter]

    def _spawn(self, options: ChildOptions, channel: int, log: int) -> FreshProcess:
        arguments = [self._python, "-P", "-m", "adapters.child", "--channel", str(channel), encode(options).decode()]
        environment = child_environment(os.environ, options.scratch_path)
        environment["OMP_NUM_THREADS"] = str(options.threads)
        return spawn(arguments, log=log, keep=(channel,), environment=environment, folder=options.scratch_path)
