"""The reins of one attempt: its work ends early when it is cancelled, when its lease is over, or when its time is up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from bus.errors import ErrorCode, ModelForgeError
from node_agent.artifact_hash import Watch
from node_agent.claims import Lease
from node_agent.waiting import end_tasks

T = TypeVar("T")
# Every block of a file is followed by a look at the reins; only a dead file system takes longer than this.
THREAD_END_S: Final = 10.0
_log = logging.getLogger(__name__)


async def guarded(work: Coroutine[Any, Any, T], lease: Lease, *, total_s: float) -> T:
    """The result of `work`, or the reason why it was ended; it has ended in any case when this returns.

    Raises:
        ModelForgeError: what `work` raised; CANCELLED when an operator wished so; why the lease is over; TIMEOUT after
            `total_s`; NODE_FAULT for a defect of the agent, which is logged whole here and named by its class only.
    """
    task = asyncio.ensure_future(work)
    signals = [asyncio.ensure_future(event.wait()) for event in (lease.ended, lease.cancelled)]
    try:
        await asyncio.wait((task, *signals), timeout=max(0.0, total_s), return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Work that has a result keeps it: a cancel that comes too late is too late. What it does at its own end may
        # take as long as a thread: it is not cancelled a second time before.
        await end_tasks(task, *signals, again_s=THREAD_END_S + 1.0)
    if not task.cancelled():
        return _result(task)
    if lease.end is not None:
        raise lease.end
    if lease.cancelled.is_set():
        raise ModelForgeError(ErrorCode.CANCELLED, "an operator cancelled the job")
    raise ModelForgeError(ErrorCode.TIMEOUT, f"the whole job took longer than {total_s:.0f} s", phase="all")


def _result(task: asyncio.Future[T]) -> T:
    try:
        return task.result()
    except ModelForgeError:
        raise
    except Exception as error:
        raise fault_of(error) from error


def fault_of(error: Exception) -> ModelForgeError:
    """`error` as it is reported: itself when it is typed, else NODE_FAULT.

    A foreign exception is logged whole and reported by its class, or by the kernel's words, only: its own text may
    hold a place of this machine.
    """
    if isinstance(error, ModelForgeError):
        return error
    _log.error("a fault of the node ended an attempt", exc_info=error)
    what = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return ModelForgeError(ErrorCode.NODE_FAULT, f"the agent failed with {what!r}; its own log says where")


async def in_thread(watch: Watch, call: Callable[[], T]) -> T:
    """Run the blocking `call`, which obeys `watch`; when this is cancelled, the thread is ended too."""
    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        watch.cancel()
        done, _ = await asyncio.wait((task,), timeout=THREAD_END_S)
        if not done:
            _log.error("a thread hangs in the file system")
        elif task.exception() is not None:
            _log.debug("a read was ended: %s", task.exception())
        raise
