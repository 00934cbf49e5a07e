"""What is packed as a whole, as joblib and pandas write pickles: unpacked in small pieces up to a bound, never to a file.

A loader unpickles while it unpacks, long before a checksum or an end is missed, so what came before an error counts.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import BinaryIO, Final, Protocol

from adapters.formats.pickle_source import Exhausted

HEAD_BYTES: Final = 64 * 1024
MAX_UNPACKED_BYTES: Final = 32 * 1024 * 1024
MAX_STREAMS: Final = 100_000
_MAX_LZMA_BYTES: Final = 256 * 1024 * 1024
# How lzma says that it would need more; it has no other word for it.
_LIMIT: Final = "limit"
_PIECE_BYTES: Final = 8 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_ZFILE: Final = b"ZF"
# Behind its mark stands a length of 19 characters, which Python reads to the base 16, and a space or not.
_ZFILE_HEADER_BYTES: Final = 21
_KINDS: Final = (
    (b"x\x01", "zlib"),
    (b"x\x5e", "zlib"),
    (b"x\x9c", "zlib"),
    (b"x\xda", "zlib"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"]\x00", "lzma"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflater:
    """zlib's unpacker with the words of the two others."""

    def __init__(self, window_bits: int) -> None:
        self._inner = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _lzma() -> _Unpacker:
    return lzma.LZMADecompressor(memlimit=_MAX_LZMA_BYTES)


_UNPACKERS: Final[dict[str, Callable[[], _Unpacker]]] = {
    "zlib": lambda: _Inflater(zlib.MAX_WBITS),
    "gzip": lambda: _Inflater(zlib.MAX_WBITS + 16),
    "bzip2": bz2.BZ2Decompressor,
    "xz": _lzma,
    "lzma": _lzma,
}


def packed_by(head: bytes) -> str | None:
    """What the first bytes of a file say that it is packed with; a text may begin with some of them too."""
    if _is_zfile(head):
        return "zlib"
    return next((name for magic, name in _KINDS if head.startswith(magic)), None)


def _is_zfile(head: bytes) -> bool:
    if not head.startswith(_ZFILE):
        return False
    try:
        int(head[len(_ZFILE) : _ZFILE_HEADER_BYTES], 16)
    except ValueError:
        return False
    return True


def can_unpack(name: str) -> bool:
    """Is there an unpacker for it here?"""
    return name in _UNPACKERS


def unpack(file: BinaryIO, name: str, limit_bytes: int) -> tuple[bytes, bool]:
    """Up to `limit_bytes` of what is packed in `file`, which is at its beginning, and whether that is not all.

    Raises:
        Exhausted: unpacking even the first of it takes more memory than is given.
    """
    made = _UNPACKERS[name]
    unpacker, streams = made(), 1
    got = bytearray()
    ahead = file.read(_CHUNK_BYTES)
    if _is_zfile(ahead):
        ahead = ahead[_ZFILE_HEADER_BYTES:].lstrip(b" ")
    while len(got) < limit_bytes:
        if not ahead and unpacker.needs_input:
            ahead = file.read(_CHUNK_BYTES)
        try:
            piece = unpacker.decompress(ahead, min(_PIECE_BYTES, limit_bytes - len(got)))
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError) as error:
            limited = isinstance(error, MemoryError) or (isinstance(error, lzma.LZMAError) and _LIMIT in str(error))
            if limited and not got:
                raise Exhausted(f"it is compressed with {name}, and unpacking it takes too much memory") from error
            return bytes(got), limited
        got += piece
        if unpacker.eof:
            ahead = (unpacker.unused_data or file.read(_CHUNK_BYTES)).lstrip(b"\0")
            streams += 1
            if not ahead or streams > MAX_STREAMS:
                return bytes(got), bool(ahead)
            unpacker = made()
        elif not piece and not ahead:
            return bytes(got), False
        else:
            ahead = b""
    return bytes(got), True
