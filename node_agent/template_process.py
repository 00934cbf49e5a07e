"""One running template process, seen from the agent: its control socket, its log, and the children it forked."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from adapters.child.environment import child_environment
from adapters.child.template_protocol import (
    MAX_MESSAGE_BYTES,
    ChildExited,
    ChildOptions,
    Forked,
    ForkRefused,
    ForkRequest,
    FromTemplate,
    TemplateFailed,
    TemplateOptions,
    TemplateReady,
)
from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError
from bus.text import clean_line
from node_agent.child_log import ChildLog, LogReader
from node_agent.child_process import ForkedProcess
from node_agent.child_start import spawn

STOP_GRACE_S: Final = 2.0
KILL_S: Final = 10.0
LAST_WORDS_CHARS: Final = 1_000


class NotForkableError(Exception):
    """The libraries are there, but a process that imported them must not be forked."""


class TemplateProcess:
    """A template from its start to its end; used from the event loop only.

    Attributes:
        ready: done when the libraries are imported, with the milliseconds it took; otherwise with NotForkableError,
            or with a ModelForgeError (NODE_FAULT: the imports failed or the process died).
        children: the live children by pid.
        lost: set as soon as the template is known to be gone.
    """

    def __init__(
        self,
        adapter: str,
        *,
        python: str,
        scratch: Path,
        test_double: bool,
        on_childless: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.children: dict[int, ForkedProcess] = {}
        self.lost = asyncio.Event()
        self._on_childless = on_childless
        self.ready: asyncio.Future[float] = loop.create_future()
        self.ready.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[ForkedProcess]] = {}
        self._log = ChildLog()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = TemplateOptions(parent_pid=os.getpid(), adapter=adapter, test_double=test_double)
        arguments = [python, "-P", "-m", "adapters.child", "--control", str(theirs.fileno()), encode(options).decode()]
        log_reader, log_writer = os.pipe()
        try:
            environment = child_environment(os.environ, str(scratch))
            self.process = spawn(
                arguments, log=log_writer, keep=(theirs.fileno(),), environment=environment, folder=scratch
            )
        except BaseException:
            self._control.close()
            os.close(log_reader)
            raise
        finally:
            theirs.close()
            os.close(log_writer)
        self._log_reader = LogReader(log_reader, self._log)
        os.set_blocking(self._control.fileno(), False)
        loop.add_reader(self._control, self._read)

    @property
    def last_words(self) -> str:
        """The end of what the template printed, cleaned, on one line."""
        return clean_line(self._log.text()[-LAST_WORDS_CHARS:]) or "nothing"

    async def fork(self, options: ChildOptions, channel: int, log: int, timeout_s: float) -> ForkedProcess:
        """A new child that owns these two descriptors from now on (the caller closes its own copies).

        Raises:
            ModelForgeError: NODE_FAULT when the template does not answer, is gone, or got no process from the kernel.
        """
        number = next(self._numbers)
        answer: asyncio.Future[ForkedProcess] = asyncio.get_running_loop().create_future()
        self._requests[number] = answer
        try:
            request = encode(ForkRequest(request_id=number, options=options))
            socket.send_fds(self._control, [request], [channel, log])
            return await asyncio.wait_for(answer, timeout_s)
        except (TimeoutError, OSError) as error:
            raise ModelForgeError(ErrorCode.NODE_FAULT, "the template process made no child") from error
        finally:
            self._requests.pop(number, None)

    async def end(self) -> None:
        """End the template and its children, and give everything back."""
        self._gone()
        for child in self.children.values():
            child.die_with_template()
        await self.process.end(STOP_GRACE_S, KILL_S)
        for child in list(self.children.values()):
            # Its reaper is dead, so nobody can tell the status; that it is gone can still be seen.
            await child.vanished(KILL_S)
        self.children.clear()
        self._log_reader.close()

    def retire(self) -> None:
        """End the template and its children on purpose; `lost` is set at once, `end` does the rest."""
        for child in self.children.values():
            child.signal(signal.SIGKILL)
        self._gone()

    def _gone(self) -> None:
        """The template is dead or dying: nothing more is asked of it, and whoever waits for it is told."""
        if self.lost.is_set():
            return
        self.lost.set()
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        waiting: list[asyncio.Future[Any]] = [self.ready, *self._requests.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(ModelForgeError(ErrorCode.NODE_FAULT, "the template process ended"))

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data, descriptors = b"", []
        if not data:
            self._gone()
            return
        message: FromTemplate = decode(data, FromTemplate)
        self._take(message, descriptors)

    def _take(self, message: FromTemplate, descriptors: list[int]) -> None:
        match message:
            case TemplateReady():
                self.ready.set_result(message.import_ms)
            case TemplateFailed() if message.importable:
                self.ready.set_exception(NotForkableError(message.message))
            case TemplateFailed():
                self.ready.set_exception(ModelForgeError(ErrorCode(message.code), message.message))
            case Forked():
                self._born(message, descriptors[0])
            case ForkRefused():
                text = f"the kernel gave no new process: {message.message}"
                answer = self._requests.get(message.request_id)
                if answer is not None and not answer.done():
                    answer.set_exception(ModelForgeError(ErrorCode.NODE_FAULT, text))
            case ChildExited():
                self._died(message)

    def _born(self, message: Forked, handle: int) -> None:
        child = ForkedProcess(message.pid, handle)
        self.children[message.pid] = child
        answer = self._requests.get(message.request_id)
        if answer is None or answer.done():
            child.signal(signal.SIGKILL)  # its asker gave up meanwhile: nobody else would ever end it
        else:
            answer.set_result(child)

    def _died(self, message: ChildExited) -> None:
        child = self.children.pop(message.pid, None)
        if child is not None:
            child.ended(os.waitstatus_to_exitcode(message.wait_status))
        if not self.children:
            self._on_childless()
