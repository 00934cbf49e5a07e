"""The warm process: libraries imported once, a child forked on request.

Imports are 92 % of a cold probe. A forked child starts with them done, so the template must be clean to fork: one
thread, no tokenizer used, CUDA untouched. That is checked, not hoped for; a template that is not clean says so and
ends, and the agent starts fresh interpreters instead and says that.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from typing import Final, NoReturn

import msgspec

from adapters import registry
from adapters.child import barrier, guard, limits
from adapters.child import serve as child
from adapters.child.channel import Channel
from adapters.child.environment import foreign_names
from adapters.child.failures import normalise
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
from bus.errors import ErrorCode

EXIT_FAILED: Final = 1
EXIT_CHILD_BROKEN: Final = 70
_DESCRIPTORS_WITH_REQUEST: Final = 2


class Template:
    """The loop of a template: requests in, children out, exit statuses reported."""

    def __init__(self, control: socket.socket, inherited: child.Inherited) -> None:
        self._control, self._inherited = control, inherited
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: dict[int, int] = {}  # pidfd -> pid

    def run(self) -> int:
        """Serve until the agent closes the control socket. Children die with this process."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._request():
                        return 0
                else:
                    self._reap(key.fd)

    def _request(self) -> bool:
        """Handle one request; `False` when the agent is gone."""
        data, descriptors, _, _ = socket.recv_fds(
            self._control, MAX_MESSAGE_BYTES, _DESCRIPTORS_WITH_REQUEST, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            return False
        request = decode(data, ForkRequest)
        channel, log = descriptors
        try:
            self._fork(request, channel, log)
        finally:
            os.close(channel)
            os.close(log)
        return True

    def _fork(self, request: ForkRequest, channel: int, log: int) -> None:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:
            _send(self._control, ForkRefused(request_id=request.request_id, message=error.strerror or "fork"))
            return
        if pid == 0:
            self._become(parent, request.options, channel, log)
        handle = os.pidfd_open(pid)
        self._children[handle] = pid
        self._selector.register(handle, selectors.EVENT_READ)
        _send(self._control, Forked(request_id=request.request_id, pid=pid), (handle,))

    def _become(self, parent: int, options: ChildOptions, channel: int, log: int) -> NoReturn:
        """The new process. Whatever happens, it never returns into the template's loop."""
        code = EXIT_CHILD_BROKEN
        try:
            os.setsid()
            empty = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((empty, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            self._selector.close()
            self._control.close()
            for handle in self._children:
                os.close(handle)
            code = child.serve(Channel(channel), msgspec.structs.replace(options, parent_pid=parent), self._inherited)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001 -- nothing may unwind into the template's loop
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self, handle: int) -> None:
        """A child has ended: end what is left of its group while its pid cannot be anybody else's, then reap it."""
        pid = self._children.pop(handle)
        self._selector.unregister(handle)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(handle)
        _send(self._control, ChildExited(pid=pid, wait_status=status))


def serve_forks(descriptor: int, options: TemplateOptions) -> int:
    """The whole life of a template; returns its exit code."""
    control = socket.socket(fileno=descriptor)
    limits.die_with_parent(options.parent_pid)
    limits.close_inherited({descriptor})
    limits.no_core_files()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faults = tuple(foreign_names(os.environ))
    watch = guard.install(_log_attempt, processes=False)
    (sockets,) = barrier.install_filter(processes=False)
    begin = time.perf_counter()
    failed = _import(options) or unclean(watch)
    if failed is not None:
        _send(control, failed)
        return EXIT_FAILED
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page of the libraries
    _send(control, TemplateReady(pid=os.getpid(), import_ms=(time.perf_counter() - begin) * 1_000))
    inherited = child.Inherited(watch=watch, environment_faults=faults, import_barrier=barrier.imported_here(sockets))
    return Template(control, inherited).run()


def _import(options: TemplateOptions) -> TemplateFailed | None:
    try:
        for module in registry.find(options.adapter, test_double=options.test_double).preload:
            importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001 -- the edge of the process, as in serve
        traceback.print_exc()
        failed = normalise(error, "import")
        return TemplateFailed(code=failed.code, message=failed.message, importable=False)
    return None


def unclean(watch: guard.Guard) -> TemplateFailed | None:
    """Why no child may be forked from this process; `None` when it may."""
    if watch.network_attempts:
        message = "a library used the network while it was imported, and was refused"
        return TemplateFailed(code=ErrorCode.OFFLINE_LOAD_VIOLATION.value, message=message, importable=False)
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 -- a count, not paths
    if threads != 1:
        return _not_forkable(f"the libraries started {threads - 1} threads while they were imported")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return _not_forkable("the libraries initialised CUDA while they were imported")
    return None


def _not_forkable(message: str) -> TemplateFailed:
    return TemplateFailed(code=ErrorCode.NODE_FAULT.value, message=message, importable=True)


def _log_attempt(call: str, family: str) -> None:
    sys.stderr.write(f"refused {call} ({family}) while the libraries were imported\n")


def _send(control: socket.socket, message: FromTemplate, descriptors: tuple[int, ...] = ()) -> None:
    """One message to the agent. An agent that is gone is noticed at the next read, which ends the loop."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        socket.send_fds(control, [encode(message)], list(descriptors))
