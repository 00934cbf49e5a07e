"""Parts that run as processes: start in order, start again with a bounded back-off, stop in reverse order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from bus.errors import ErrorCode, ModelForgeError
from bus.text import clean_line
from modelforge.lifeline import exit_text, gone, parent_death_signal

BACKOFF_FIRST_S: Final = 0.25
BACKOFF_MAX_S: Final = 8.0
_LOG_LIMIT_BYTES: Final = 16 * 1024 * 1024
_LOG_TAIL_BYTES: Final = 4_096
_LAST_LINE_CHARS: Final = 300


class Part(Protocol):
    """One process of the stack."""

    name: str
    log_path: Path

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""

    def start(self) -> None:
        """Start it (from the main thread: the parent-death signal is bound to the thread)."""

    async def ready(self) -> None:
        """Return when it does its work; the caller watches its death and the time."""

    async def stop(self, limit_s: float) -> None:
        """End it gracefully, by force after `limit_s`; harmless when it does not run."""

    def kill(self) -> None:
        """End it at once."""

    def ended(self) -> str:
        """How it ended, in words."""


class RestartBudget:
    """How often a part may be started again: pure, the clock comes from outside."""

    def __init__(self, *, max_restarts: int, window_s: float) -> None:
        self.max_restarts = max_restarts
        self._window_s = window_s
        self._times: deque[float] = deque()

    def next_delay_s(self, now: float) -> float | None:
        """Wait so long, then start again; `None` when the budget is spent."""
        while self._times and now - self._times[0] > self._window_s:
            self._times.popleft()
        if len(self._times) >= self.max_restarts:
            return None
        delay_s: float = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** len(self._times))
        self._times.append(now)
        return delay_s

    @property
    def used(self) -> int:
        """Restarts inside the window, as of the last question."""
        return len(self._times)


class ProcessPart:
    """A program of ours, in a session of its own, with its log in a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_path: Path,
        folder: Path,
        variables: Mapping[str, str],
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = list(command)
        self._folder = folder
        self._variables = dict(variables)
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it.

        Raises:
            ModelForgeError: SERVER_START_FAILED when the system refuses.
        """
        try:
            if self.log_path.exists() and self.log_path.stat().st_size > _LOG_LIMIT_BYTES:
                self.log_path.replace(self.log_path.with_suffix(".log.1"))
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._folder,
                    env=self._variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=parent_death_signal(),  # noqa: PLW1509 -- one prctl
                )
        except OSError as error:
            message = f"{self.name} cannot be started: {error.strerror or error}"
            raise ModelForgeError(ErrorCode.SERVER_START_FAILED, message, log=self.log_path) from error

    async def ready(self) -> None:
        """What the maker of this part said readiness is."""
        await self._ready()

    async def stop(self, limit_s: float) -> None:
        """SIGTERM, and SIGKILL after `limit_s`."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(gone(process.pid), limit_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to its session, then reap."""
        if self._process is not None:
            if self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def ended(self) -> str:
        """How it ended, in words."""
        return exit_text(self._process.poll() if self._process is not None else None)


class Supervisor:
    """Keeps the parts of one stack running until it is told to stop, or a part cannot be kept."""

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        max_restarts: int,
        window_s: float,
        ready_s: float,
        stop_s: float,
        tell: Callable[[str], None],
    ) -> None:
        self._parts = list(parts)
        self._budgets = {part.name: RestartBudget(max_restarts=max_restarts, window_s=window_s) for part in parts}
        self._ready_s = ready_s
        self._stop_s = stop_s
        self._tell = tell

    async def start(self, started: Callable[[Part], Awaitable[None]]) -> None:
        """Start each part and wait until it is ready before the next; `started` is told of each.

        Raises:
            ModelForgeError: SERVER_START_FAILED naming part and log, or what a part's own start raises.
        """
        for part in self._parts:
            part.start()
            await self._until_ready(part)
            await started(part)

    async def _until_ready(self, part: Part) -> None:
        ready = asyncio.ensure_future(part.ready())
        death = asyncio.ensure_future(_died(part))
        try:
            await asyncio.wait({ready, death}, timeout=self._ready_s, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
                return
            how = f"ended before it was ready ({part.ended()})" if death.done() else f"not ready in {self._ready_s:g} s"
            raise start_failed(part, how)
        finally:
            for task in (ready, death):
                task.cancel()
            await asyncio.gather(ready, death, return_exceptions=True)

    async def run(self) -> None:
        """Watch every part until cancelled.

        Raises:
            ModelForgeError: SERVER_START_FAILED when a part's restarts are used up.
        """
        watchers = [asyncio.ensure_future(self._keep(part)) for part in self._parts]
        try:
            await asyncio.gather(*watchers)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    async def _keep(self, part: Part) -> None:
        budget = self._budgets[part.name]
        while True:
            await _died(part)
            how = part.ended()
            delay_s = budget.next_delay_s(asyncio.get_running_loop().time())
            if delay_s is None:
                raise start_failed(part, f"ended again after {budget.used} restarts ({how})")
            self._tell(f"{part.name} ended ({how}); restart {budget.used} of {budget.max_restarts} in {delay_s:g} s")
            await asyncio.sleep(delay_s)
            try:
                part.start()
            except ModelForgeError as error:  # the next round counts it and gives up in time
                self._tell(f"{part.name} did not start: {error.code}: {error.message}")
                continue
            self._tell(f"{part.name} started again, pid {part.pid}")

    async def stop(self) -> None:
        """End every part, the last one first: the agent may still report, the controller may still commit."""
        for part in reversed(self._parts):
            await part.stop(self._stop_s)

    def kill(self) -> None:
        """End every part at once (the operator asked twice)."""
        for part in reversed(self._parts):
            part.kill()


async def _died(part: Part) -> None:
    pid = part.pid
    if pid is not None:
        await gone(pid)


def start_failed(part: Part, how: str) -> ModelForgeError:
    """A part that does not come up or stay up, with the last words of its log."""
    return ModelForgeError(
        ErrorCode.SERVER_START_FAILED, f"{part.name} {how}", log=part.log_path, last=last_line(part.log_path)
    )


def last_line(log: Path) -> str:
    """The last line of a log, for one line of a message; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return clean_line(lines[-1], _LAST_LINE_CHARS) if lines else ""
