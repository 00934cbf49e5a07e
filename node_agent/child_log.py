"""The bounded log of one attempt: the first and the last of what a child printed (spec P12)."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Final

from adapters.payloads import mask_inputs
from bus.text import clean_text, redact

HEAD_BYTES: Final = 16 * 1024
TAIL_BYTES: Final = 48 * 1024
_READ_BYTES: Final = 64 * 1024


class ChildLog:
    """Keeps the head and the tail, counts what lay between, and never grows.

    Text leaves it cleaned for terminals, without credentials and without the fixed input. Where something was
    dropped, the kept parts end at whole lines: half a credential is still one, and no pattern would find it.
    """

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_limit_bytes, self._tail_limit_bytes = head_bytes, tail_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take what the child wrote; any size, at any boundary."""
        self._total_bytes += len(data)
        room = self._head_limit_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        data = data[-self._tail_limit_bytes :]
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= self._tail_limit_bytes:
            self._tail_bytes -= len(self._tail.popleft())

    def _parts(self) -> tuple[bytes, bytes]:
        """Head and tail as they may be shown."""
        head, tail = bytes(self._head), b"".join(self._tail)[-self._tail_limit_bytes :]
        if len(head) + len(tail) == self._total_bytes:
            return head + tail, b""
        return head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :] if b"\n" in tail else b""

    @property
    def dropped_bytes(self) -> int:
        """How many bytes of what the child wrote are not in `text`."""
        head, tail = self._parts()
        return self._total_bytes - len(head) - len(tail)

    def text(self) -> str:
        """The log for people, at most head and tail limits together and one line that says what is missing."""
        head, tail = self._parts()
        parts = [self._safe(head)]
        if self.dropped_bytes:
            parts.append(f"... {self.dropped_bytes} bytes were dropped ...\n")
        parts.append(self._safe(tail))
        return "".join(parts)

    @staticmethod
    def _safe(data: bytes) -> str:
        text = data.decode("utf-8", errors="replace")
        return mask_inputs(redact(clean_text(text, len(text))))


class LogReader:
    """Feeds a log from the reading end of a pipe, as the event loop finds something there."""

    def __init__(self, descriptor: int, log: ChildLog) -> None:
        self._descriptor, self._log = descriptor, log
        self._open = True
        self.finished = asyncio.Event()
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._log.feed(data)
        else:
            self.close()

    def close(self) -> None:
        """Stop reading. Happens by itself when every writer is gone."""
        if self._open:
            self._open = False
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self.finished.set()
