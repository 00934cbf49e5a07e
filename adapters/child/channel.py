"""The child's end of the channel: blocking frames over one descriptor, safe to write from any thread."""

from __future__ import annotations

import os
import threading

from adapters.child.protocol import HEADER, MAX_FRAME_BYTES, DownFrame
from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.base import Message


class ParentGone(Exception):  # noqa: N818 -- an end, not an error of this process
    """The parent closed the channel: nobody wants the rest."""


class Channel:
    """Frames up and down. The descriptor is a stream socket made by the parent.

    It is used through `os.read` and `os.write` only, so that the guard's own reports raise no audit event.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, frame: Message) -> None:
        """Send one frame, whole.

        Raises:
            ModelForgeError: MESSAGE_TOO_LARGE for a frame above MAX_FRAME_BYTES; nothing was sent.
            ParentGone: nobody reads any more.
        """
        body = encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise ModelForgeError(ErrorCode.MESSAGE_TOO_LARGE, f"a frame of {len(body)} bytes")
        view = memoryview(HEADER.pack(len(body)) + body)
        with self._lock:
            while view:
                try:
                    view = view[os.write(self.descriptor, view) :]
                except (BrokenPipeError, ConnectionResetError) as error:
                    raise ParentGone from error

    def receive(self) -> DownFrame:
        """Wait for the next frame.

        Raises:
            ParentGone: the parent closed the channel or died.
            ModelForgeError: MALFORMED_MESSAGE, UNKNOWN_KIND, MESSAGE_TOO_LARGE.
        """
        (length,) = HEADER.unpack(self._read(HEADER.size))
        if length > MAX_FRAME_BYTES:
            raise ModelForgeError(ErrorCode.MESSAGE_TOO_LARGE, f"a frame of {length} bytes")
        frame: DownFrame = decode(self._read(length), DownFrame)
        return frame

    def _read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            try:
                part = os.read(self.descriptor, count)
            except ConnectionResetError as error:
                raise ParentGone from error
            if not part:
                raise ParentGone
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
