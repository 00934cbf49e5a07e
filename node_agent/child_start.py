"""How a child comes to be: its channel, its log, its process; when the start fails, nothing of it is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Generic, TypeVar

from bus.errors import ErrorCode, ModelForgeError
from node_agent.child_log import ChildLog, LogReader
from node_agent.child_process import ChildProcess, FreshProcess
from node_agent.frames import FrameStream

F = TypeVar("F")
P = TypeVar("P", bound=ChildProcess)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Generic[P, F]):
    """A running child and the agent's ends of it; whoever gets it gives them back."""

    process: P
    frames: FrameStream[F]
    log: ChildLog
    reader: LogReader


async def start(launch: Callable[[int, int], Awaitable[P]], kinds: UnionType) -> Started[P, F]:
    """A child that talks in frames.

    Args:
        launch: starts the process, which inherits the two descriptors: its end of the channel, and of its log.
        kinds: the union of the frames that it may send, as in the stream's own type.

    Raises:
        Whatever `launch` raises.
    """
    ours, theirs = socket.socketpair()
    log_reader, log_writer = os.pipe()
    try:
        process = await launch(theirs.fileno(), log_writer)
    except BaseException:
        ours.close()
        os.close(log_reader)
        raise
    finally:
        theirs.close()
        os.close(log_writer)
    log = ChildLog()
    reader = LogReader(log_reader, log)
    try:
        frames: FrameStream[F] = await FrameStream.open(ours, kinds)
    except BaseException:
        # Cancelled at the last moment: nobody will ever hold this child, so it ends here.
        process.signal(signal.SIGKILL)
        reader.close()
        ours.close()
        raise
    return Started(process=process, frames=frames, log=log, reader=reader)


def spawn(
    command: Sequence[str],
    *,
    log: int,
    keep: Sequence[int],
    environment: Mapping[str, str],
    folder: Path | str,
) -> FreshProcess:
    """A new process in a session of its own, which writes to `log` and inherits `keep`; its bounded life is the caller's.

    Call it from the thread of the event loop: the kernel binds a child's parent-death signal to the thread that
    started it.

    Raises:
        ModelForgeError: NODE_FAULT when no process could be started.
    """
    try:
        popen = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=tuple(keep),
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"no process could be started: {error.strerror}") from error
    return FreshProcess(popen)
