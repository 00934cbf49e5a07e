"""The agent's end of a child's channel: frames in through a bounded queue, frames out, nothing lost by a timeout."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import UnionType
from typing import Any, Final, Generic, TypeVar

from adapters.child.protocol import HEADER, MAX_FRAME_BYTES, DownFrame
from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError

MAX_WAITING_FRAMES: Final = 128
F = TypeVar("F")


class ChildGone(Exception):  # noqa: N818 -- an end; whether it is an error is the caller's to say
    """The child closed its channel."""


class FrameStream(Generic[F]):
    """Reads frames in a task of its own, so that a caller that gives up waiting leaves no half-read frame behind."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: UnionType) -> None:
        """`frames` is the union of what the child may send, as in the stream's own type."""
        self._reader, self._writer = reader, writer
        self._kinds = frames
        self._frames: asyncio.Queue[F | Exception] = asyncio.Queue(MAX_WAITING_FRAMES)
        self._end: Exception | None = None
        self._task = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def open(cls, connection: socket.socket, frames: UnionType) -> FrameStream[F]:
        """Take over a connected stream socket."""
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        return cls(reader, writer, frames)

    async def _read(self) -> None:
        while True:
            try:
                frame = await self._next()
            except (asyncio.IncompleteReadError, ConnectionError):
                await self._frames.put(ChildGone())
                return
            except ModelForgeError as error:
                await self._frames.put(error)
                return
            await self._frames.put(frame)

    async def _next(self) -> F:
        (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if length > MAX_FRAME_BYTES:
            raise ModelForgeError(ErrorCode.MESSAGE_TOO_LARGE, f"the child announced a frame of {length} bytes")
        frame: Any = decode(await self._reader.readexactly(length), self._kinds)
        return frame  # type: ignore[no-any-return]  # one of the union that the caller named

    async def receive(self, timeout_s: float | None) -> F:
        """See `Child.receive`; `None` when the caller has a bound of its own. After the end every call gives the same end."""
        if self._end is not None:
            raise self._end
        async with asyncio.timeout(timeout_s):
            item = await self._frames.get()
        if isinstance(item, Exception):
            self._end = item
            raise item
        return item

    async def send(self, frame: DownFrame) -> None:
        """See `Child.send`."""
        body = encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise ModelForgeError(ErrorCode.MESSAGE_TOO_LARGE, f"a frame of {len(body)} bytes")
        try:
            self._writer.write(HEADER.pack(len(body)) + body)
            await self._writer.drain()
        except ConnectionError as error:
            raise ChildGone from error

    async def close(self) -> None:
        """Close the channel; frames that nobody fetched are gone."""
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
