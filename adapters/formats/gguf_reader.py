"""A cursor over the head of a GGUF file that never believes a length before it knows that the file has it.

Values nobody asked for are passed over, not kept: a vocabulary of 250,000 texts costs its reading and no memory.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

from adapters.formats.documents import DocumentProblem

# A vocabulary of a million texts with its merges has 30 MB.
MAX_HEADER_BYTES: Final = 256 * 1024 * 1024
MAX_KEPT_TEXT_BYTES: Final = 64 * 1024
# All entries of arrays that have to be walked one by one, in the whole header.
MAX_WALKED: Final = 3_000_000
# Arrays of arrays: the format has them, no model does.
MAX_NESTED: Final = 10_000
MAX_NESTING: Final = 4
_CHUNK: Final = 64 * 1024
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_STRING: Final = 8
_ARRAY: Final = 9
# Numbers of a fixed size: uint8, int8, uint16, int16, uint32, int32, float32, bool, uint64, int64, float64.
_NUMBERS: Final = {
    kind: struct.Struct(f"<{code}")
    for kind, code in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}

Value = int | float | bool | str | None


class Reader:
    """Reads forwards from `position`; every method raises `DocumentProblem` for what the file cannot hold, and OSError."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        self._begin = 0
        self._walked = 0
        self._nested = 0
        self._size_bytes = size_bytes

    @property
    def position(self) -> int:
        """Bytes from the beginning of the file."""
        return self._begin + self._at

    @property
    def remaining(self) -> int:
        """Bytes behind the position."""
        return self._size_bytes - self.position

    def u32(self) -> int:
        """The next four bytes."""
        (value,) = _U32.unpack(self.take(4))
        return int(value)

    def u64(self) -> int:
        """The next eight bytes."""
        (value,) = _U64.unpack(self.take(8))
        return int(value)

    def take(self, count: int) -> bytes:
        """The next `count` bytes, at most `MAX_KEPT_TEXT_BYTES`."""
        if len(self._buffer) - self._at < count:
            self._fill(count)
        begin = self._at
        self._at += count
        return self._buffer[begin : self._at]

    def skip(self, count: int) -> None:
        """Go over `count` bytes."""
        if count > self.remaining:
            raise DocumentProblem("the file ends inside its header")
        if self.position + count > MAX_HEADER_BYTES:
            raise DocumentProblem(f"the header is larger than {MAX_HEADER_BYTES} bytes")
        if self._at + count <= len(self._buffer):
            self._at += count
            return
        self._begin = self._file.seek(self.position + count)
        self._buffer, self._at = b"", 0

    def text(self, max_bytes: int = MAX_KEPT_TEXT_BYTES) -> str:
        """The next text; one that is no UTF-8 is a problem."""
        length = self.u64()
        if length > self.remaining:
            raise DocumentProblem("a text is longer than the rest of the file")
        if length > max_bytes:
            raise DocumentProblem(f"a text is longer than {max_bytes} bytes")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DocumentProblem("a text is not UTF-8") from error

    def value(self, *, keep: bool) -> Value:
        """The next typed value; `None` for an array, and for whatever is not to be kept."""
        kind = self.u32()
        if kind in _NUMBERS:
            (number,) = _NUMBERS[kind].unpack(self.take(_NUMBERS[kind].size))
            return number if keep else None
        if kind == _ARRAY:
            self._pass_array(1)
            return None
        if kind != _STRING:
            raise DocumentProblem(f"a value has the unknown type {kind}")
        if keep:
            return self.text()
        self._pass_texts(1)
        return None

    def _pass_array(self, depth: int) -> None:
        if depth > MAX_NESTING:
            raise DocumentProblem(f"an array is nested deeper than {MAX_NESTING} levels")
        kind, count = self.u32(), self.u64()
        if kind in _NUMBERS:
            self.skip(count * _NUMBERS[kind].size)
        elif kind == _STRING:
            self._pass_texts(count)
        elif kind == _ARRAY:
            self._nested += count
            if self._nested > MAX_NESTED:
                raise DocumentProblem(f"the arrays hold more than {MAX_NESTED} arrays")
            for _ in range(count):
                self._pass_array(depth + 1)
        else:
            raise DocumentProblem(f"an array holds the unknown type {kind}")

    def _pass_texts(self, count: int) -> None:
        self._walk(count)
        unpack, size = _U64.unpack_from, _U64.size
        for _ in range(count):
            if len(self._buffer) - self._at < size:
                self._fill(size)
            (length,) = unpack(self._buffer, self._at)
            self._at += size
            if length <= len(self._buffer) - self._at:
                self._at += length
            else:
                self.skip(length)

    def _walk(self, count: int) -> None:
        # Each entry begins with a length of eight bytes at least.
        if count * _U64.size > self.remaining:
            raise DocumentProblem("an array has more entries than the file has room for")
        self._walked += count
        if self._walked > MAX_WALKED:
            raise DocumentProblem(f"the arrays have more than {MAX_WALKED} entries")

    def _fill(self, count: int) -> None:
        if count > self.remaining:
            raise DocumentProblem("the file ends inside its header")
        if self.position + count > MAX_HEADER_BYTES:
            raise DocumentProblem(f"the header is larger than {MAX_HEADER_BYTES} bytes")
        rest = self._buffer[self._at :]
        self._begin, self._at = self.position, 0
        self._buffer = rest + self._file.read(min(max(_CHUNK, count), self._size_bytes - self._begin) - len(rest))
        if len(self._buffer) < count:
            raise DocumentProblem("the file is shorter than it was")
