"""The bytes of a pickle, under limits that an unpickler does not have: no claimed length is allocated, no line is kept whole.

An argument longer than `MAX_ARGUMENT_BYTES` is passed over: tensors and long texts decide nothing. What is passed over
must be there, so that a claim of gigabytes in a file of fifty bytes ends at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

MAX_ARGUMENT_BYTES: Final = 8 * 1024
# Small, because most of it is thrown away where a tensor is passed over.
_CHUNK_BYTES: Final = 8 * 1024
_LINE_CHUNK_BYTES: Final = 256 * 1024
_NO_STOP: Final = "it ends before its STOP"
_SHORT: Final = "it ends inside an instruction, or claims more bytes than there are"
# What is said of a pickle that may go on where its bytes end.
CUT_SHORT: Final = frozenset({_NO_STOP, _SHORT})


class Unreadable(Exception):  # noqa: N818 -- a finding about a foreign file, not an error of the product
    """Why a pickle cannot be read to its end: no unpickler goes on here."""


class Exhausted(Unreadable):
    """A limit of this reader's own: an unpickler may well go on."""


class Source:
    """The bytes of one pickle, from the place where `file` stands.

    Attributes:
        left: bytes that have not been read yet.
        long_begins: with what the last line began that was too long to keep.
    """

    def __init__(self, file: BinaryIO, size_bytes: int, on_read: Callable[[int], None] | None = None) -> None:
        """`on_read` is told how many bytes were really read, and raises `Exhausted` when they are too many."""
        self._file = file
        self._on_read = on_read
        self._buffer = b""
        self._at = 0
        self.left = size_bytes
        self.long_begins = b""

    def instruction(self) -> int:
        """The next byte.

        Raises:
            Unreadable: there is none.
        """
        if self._at >= len(self._buffer):
            if not self.left:
                raise Unreadable(_NO_STOP)
            self._fill(1)
        byte = self._buffer[self._at]
        self._at += 1
        self.left -= 1
        return byte

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes, at most `MAX_ARGUMENT_BYTES`.

        Raises:
            Unreadable: there are not so many.
        """
        if self._at + size > len(self._buffer):
            if size > self.left:
                raise Unreadable(_SHORT)
            self._fill(size)
        data = self._buffer[self._at : self._at + size]
        self._at += size
        self.left -= size
        return data

    def read(self, size: int) -> bytes | None:
        """`size` bytes; `None` where they are too many to keep and were passed over.

        Raises:
            Unreadable: there are not so many.
        """
        if size <= MAX_ARGUMENT_BYTES:
            return self.take(size)
        self.skip(size)
        return None

    def line(self) -> bytes | None:
        """A line without its last byte, which is its end, except at the end of the file; `None` for a long one."""
        end = self._buffer.find(b"\n", self._at)
        length = 0
        while end < 0:
            have = len(self._buffer) - self._at
            if have >= self.left:
                end = self._at + have - 1
                break
            if length or have > MAX_ARGUMENT_BYTES:
                if not length:
                    self.long_begins = self._buffer[self._at :]
                length += have
                self._at = len(self._buffer)
                self.left -= have
                have = 0
            self._fill(have + 1, _LINE_CHUNK_BYTES if length else _CHUNK_BYTES)
            end = self._buffer.find(b"\n", self._at + have)
        line = self._buffer[self._at : end]
        self.left -= end + 1 - self._at
        self._at = end + 1
        if not length and len(line) > MAX_ARGUMENT_BYTES:
            self.long_begins = line
        return None if length or len(line) > MAX_ARGUMENT_BYTES else line

    def skip(self, size: int) -> None:
        """Pass over `size` bytes without reading them.

        Raises:
            Unreadable: there are not so many.
        """
        if size > self.left:
            raise Unreadable(_SHORT)
        ahead = len(self._buffer) - self._at
        if size <= ahead:
            self._at += size
        else:
            self._file.seek(size - ahead, 1)
            self._buffer, self._at = b"", 0
        self.left -= size

    def _fill(self, size: int, chunk_bytes: int = _CHUNK_BYTES) -> None:
        """Have at least `size` bytes in the buffer, or all that are left."""
        kept = self._buffer[self._at :]
        size = min(size, self.left)
        more = self._file.read(min(max(size - len(kept), chunk_bytes), self.left - len(kept)))
        if self._on_read is not None:
            self._on_read(len(more))
        if len(kept) + len(more) < size:
            raise Exhausted("the file is shorter than it was")
        self._buffer, self._at = kept + more, 0
