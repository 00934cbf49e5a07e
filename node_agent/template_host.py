"""Keeps at most one template process for one adapter: started when first wanted, ended when idle."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from adapters.child.template_protocol import ChildOptions
from bus.errors import ErrorCode, ModelForgeError
from node_agent.child_process import ForkedProcess
from node_agent.template_process import NotForkableError, TemplateProcess

_log = logging.getLogger(__name__)


class TemplateHost:
    """Forks children from a warm process; used from the event loop only.

    Args:
        adapter: whose libraries the template imports.
        python: the interpreter.
        scratch: folder for the template's own temporary files.
        start_s: how long the imports may take.
        fork_s: how long one fork may take.
        idle_s: how long a template without children is kept.
        test_double: is the test double known to it?

    Attributes:
        import_ms: how long the last template took to import its libraries.
    """

    def __init__(
        self,
        adapter: str,
        *,
        python: str,
        scratch: Path,
        start_s: float,
        fork_s: float,
        idle_s: float,
        test_double: bool = False,
    ) -> None:
        self._adapter, self._python, self._scratch, self._test_double = adapter, python, scratch, test_double
        self._start_s, self._fork_s, self._idle_s = start_s, fork_s, idle_s
        self._lock = asyncio.Lock()
        self._process: TemplateProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.import_ms: float | None = None

    @property
    def pid(self) -> int | None:
        """The template's pid while it runs."""
        return self._process.process.pid if self._process is not None and not self._process.lost.is_set() else None

    async def warm(self) -> None:
        """Start the template, if it does not run, and wait until it is ready.

        Raises:
            NotForkableError: the libraries are there, but must not be forked; start fresh interpreters.
            ModelForgeError: NODE_FAULT when the libraries cannot be imported or the template dies.
        """
        async with self._lock:
            try:
                await self._ensure()
            finally:
                self._count_idle()

    async def fork(self, options: ChildOptions, channel: int, log: int) -> ForkedProcess:
        """A new child with these two descriptors. Raises as `warm`."""
        async with self._lock:
            try:
                process = await self._ensure()
                return await process.fork(options, channel, log, self._fork_s)
            finally:
                self._count_idle()

    async def stop(self) -> None:
        """End the template; its children, if any, die with it."""
        async with self._lock:
            await self._retire()

    async def _ensure(self) -> TemplateProcess:
        """The live template, started when there is none; called under the lock."""
        if self._process is None or self._process.lost.is_set():
            await self._retire()
            self._process = TemplateProcess(
                self._adapter,
                python=self._python,
                scratch=self._scratch,
                test_double=self._test_double,
                on_childless=self._count_idle,
            )
            self._keeper = asyncio.get_running_loop().create_task(_end_when_lost(self._process))
        process = self._process
        try:
            async with asyncio.timeout(self._start_s):
                self.import_ms = await asyncio.shield(process.ready)
        except (NotForkableError, ModelForgeError) as error:
            await self._retire()
            _log.warning("no template for %s: %s; it said: %s", self._adapter, error, process.last_words)
            raise
        except TimeoutError as error:
            await self._retire()
            message = f"the libraries were not imported within {self._start_s:g} s"
            raise ModelForgeError(ErrorCode.NODE_FAULT, message) from error
        return process

    async def _retire(self) -> None:
        """End the template, if there is one, and wait until it is gone; called under the lock."""
        if self._timer is not None:
            self._timer.cancel()
        process, self._process = self._process, None
        keeper, self._keeper = self._keeper, None
        if process is not None and keeper is not None:
            process.retire()
            await keeper

    def _count_idle(self) -> None:
        """Something ended that kept the template busy: count the idle time anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._idle_over)

    def _idle_over(self) -> None:
        """Retire the template, unless it is in use; whatever uses it counts anew when it ends."""
        if self._process is not None and not self._process.children and not self._lock.locked():
            self._process.retire()


async def _end_when_lost(process: TemplateProcess) -> None:
    """Own the process: whatever takes it away, it is ended and reaped here, once."""
    await process.lost.wait()
    await process.end()
