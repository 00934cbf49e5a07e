"""Bytes for `pickletools.genops`, under limits that it does not have: no claimed length is allocated, no line is endless.

An argument longer than `MAX_ARGUMENT_BYTES` is passed over: tensors and long texts decide nothing. What is passed over
must be there, so that a claim of gigabytes in a file of fifty bytes ends at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

MAX_ARGUMENT_BYTES: Final = 8 * 1024
MAX_LINE_BYTES: Final = 1024 * 1024
# Small, because most of it is thrown away where a tensor is passed over.
_CHUNK_BYTES: Final = 8 * 1024


# `genops` undoes escapes that no unpickler undoes, and refuses names that an unpickler reads as UTF-8.
_PLAIN: Final = bytes(ord("?") if byte == ord("\\") or byte > 0x7F else byte for byte in range(256))  # noqa: PLR2004 -- ASCII


class Unreadable(Exception):  # noqa: N818 -- a finding about a foreign file, not an error of the product
    """Why a pickle cannot be read to its end."""


class Skipped(bytes):
    """Stands for an argument that was passed over: as long as it says, and empty."""

    size: int

    def __len__(self) -> int:
        """The length of what was passed over, which is what `genops` compares."""
        return self.size


class Source:
    """The bytes of one pickle, from the place where `file` stands.

    Attributes:
        left: bytes that have not been read yet.
        skipped: was the last argument passed over?
        altered: was `genops` given other bytes than those of the lines?
        lines: the lines that the last instruction took, as they are in the file.
    """

    def __init__(self, file: BinaryIO, size_bytes: int, on_read: Callable[[int], None] | None = None) -> None:
        """`on_read` is told how many bytes were really read, and raises `Unreadable` when they are too many."""
        self._file = file
        self._on_read = on_read
        self._buffer = b""
        self._at = 0
        self.left = size_bytes
        self.skipped = False
        self.altered = False
        self.lines: list[bytes] = []

    def begin(self) -> None:
        """The next read belongs to the next instruction."""
        self.skipped = False
        if self.lines:
            self.altered = False
            self.lines = []

    def read(self, size: int) -> bytes:
        """`size` bytes, or fewer where the pickle ends; a long argument comes back as `Skipped`."""
        end = self._at + size
        if size >= 0 and end <= len(self._buffer):
            data = self._buffer[self._at : end]
            self._at = end
            self.left -= size
            return data
        if size < 0 or size > self.left:
            raise Unreadable("it ends inside an instruction, or claims more bytes than there are")
        if size <= MAX_ARGUMENT_BYTES:
            self._fill(size)
            return self.read(size)
        self.skip(size)
        self.skipped = True
        passed = Skipped()
        passed.size = size
        return passed

    def readline(self) -> bytes:
        """A line with its end; `genops` gets no backslash and nothing but ASCII, the true one is kept in `lines`."""
        end = self._buffer.find(b"\n", self._at)
        while end < 0:
            have = len(self._buffer) - self._at
            if have >= self.left:
                raise Unreadable("it ends inside a line")
            if have > MAX_LINE_BYTES:
                raise Unreadable(f"a line is longer than {MAX_LINE_BYTES} bytes")
            self._fill(max(have * 2, 1))
            end = self._buffer.find(b"\n", self._at + have)
        line = self._buffer[self._at : end + 1]
        self.left -= len(line)
        self._at = end + 1
        self.lines.append(line)
        plain = line.translate(_PLAIN)
        self.altered = self.altered or plain != line
        return plain

    def skip(self, size: int) -> None:
        """Pass over `size` bytes without reading them.

        Raises:
            Unreadable: there are not so many.
        """
        if size > self.left:
            raise Unreadable("it claims more bytes than there are")
        ahead = len(self._buffer) - self._at
        if size <= ahead:
            self._at += size
        else:
            self._file.seek(size - ahead, 1)
            self._buffer, self._at = b"", 0
        self.left -= size

    def _fill(self, size: int) -> None:
        """Have at least `size` bytes in the buffer, or all that are left."""
        kept = self._buffer[self._at :]
        size = min(size, self.left)
        more = self._file.read(min(max(size - len(kept), _CHUNK_BYTES), self.left - len(kept)))
        if self._on_read is not None:
            self._on_read(len(more))
        if len(kept) + len(more) < size:
            raise Unreadable("the file is shorter than it was")
        self._buffer, self._at = kept + more, 0
