"""Processes that must not outlive the one that started them, and how their end is learned without polling."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
# Loaded here, not after the fork: the child of a fork may hardly do more than one system call.
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_POLL_S: Final = 0.1


def parent_death_signal(number: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """What a child does between fork and exec so that it gets `number` when we die, even by kill -9.

    Linux binds the signal to the *thread* that forks: from any other than the main thread nothing is armed, because
    that thread's end would take the child with it.
    """
    if _LIBC is None or threading.current_thread() is not threading.main_thread():
        return None
    libc, parent = _LIBC, os.getpid()

    def arm() -> None:
        if libc.prctl(_PR_SET_PDEATHSIG, number) != 0 or os.getppid() != parent:
            os._exit(127)

    return arm


async def gone(pid: int) -> None:
    """Return when the process has ended (it may still have to be reaped); at once when there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # an older kernel or a strict sandbox: look now and then instead
        await _poll(pid)
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _poll(pid: int) -> None:
    while os.path.exists(f"/proc/{pid}"):  # noqa: ASYNC110, ASYNC240, PTH110 -- a file of the kernel's: no event, no wait
        await asyncio.sleep(_POLL_S)


def exit_text(code: int | None) -> str:
    """How a process ended: `exit 1`, `signal 9 (SIGKILL)`."""
    if code is None:
        return "still running"
    if code >= 0:
        return f"exit {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
