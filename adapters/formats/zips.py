"""The names in a zip's directory, read in a bounded way and without unpacking anything."""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

from adapters.formats.documents import DocumentProblem

MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
MAX_DIRECTORY_BYTES: Final = 16 * 1024 * 1024
MAX_ENTRIES: Final = 200_000
_LOCAL: Final = struct.Struct("<4s22xHH")
_ENTRY: Final = struct.Struct("<4s24xHHH12x")
_END: Final = struct.Struct("<4s4xHHIIH")
_LOCATOR: Final = struct.Struct("<4s4xQ4x")
_END_64: Final = struct.Struct("<4s20xQQQQ")
_MAX_COMMENT_BYTES: Final = 65_535
_IN_64: Final = 0xFFFFFFFF


def first_name(head: bytes) -> str:
    """The name of the entry that a zip begins with; empty when the head has none."""
    if len(head) < _LOCAL.size or not head.startswith(MAGICS[0]):
        return ""
    _, length, _ = _LOCAL.unpack_from(head)
    return head[_LOCAL.size : _LOCAL.size + length].decode("utf-8", "replace")


def entry_names(file: BinaryIO, size_bytes: int) -> list[str]:
    """The names of all entries, as the directory at the end of an open file lists them.

    Raises:
        DocumentProblem: when there is no directory, or one beyond the bounds.
        OSError: when the file cannot be read.
    """
    begin, length = _directory(file, size_bytes)
    if length > MAX_DIRECTORY_BYTES or length > size_bytes:
        raise DocumentProblem("the directory of the zip is too large")
    file.seek(begin)
    data = file.read(length)
    names: list[str] = []
    at = 0
    while at + _ENTRY.size <= len(data) and len(names) < MAX_ENTRIES:
        magic, name_bytes, extra_bytes, comment_bytes = _ENTRY.unpack_from(data, at)
        if magic != b"PK\x01\x02":
            break
        at += _ENTRY.size
        names.append(data[at : at + name_bytes].decode("utf-8", "replace"))
        at += name_bytes + extra_bytes + comment_bytes
    return names


def _directory(file: BinaryIO, size_bytes: int) -> tuple[int, int]:
    """Where the directory begins and how long it is; things before the zip move it, as every reader allows."""
    tail_begin = max(0, size_bytes - _END.size - _MAX_COMMENT_BYTES - _LOCATOR.size)
    file.seek(tail_begin)
    tail = file.read(size_bytes - tail_begin)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise DocumentProblem("the zip has no directory")
    _, _, _, length, _, _ = _END.unpack_from(tail, at)
    end = tail_begin + at
    if at >= _LOCATOR.size and tail.startswith(b"PK\x06\x07", at - _LOCATOR.size):
        _, place = _LOCATOR.unpack_from(tail, at - _LOCATOR.size)
        end, length = _end_64(file, size_bytes, place)
    elif length == _IN_64:
        raise DocumentProblem("the zip has no directory")
    if length > end:
        raise DocumentProblem("the directory of the zip is larger than the file")
    return end - length, length


def _end_64(file: BinaryIO, size_bytes: int, place: int) -> tuple[int, int]:
    if place + _END_64.size > size_bytes:
        raise DocumentProblem("the zip has no directory")
    file.seek(place)
    data = file.read(_END_64.size)
    if len(data) < _END_64.size or not data.startswith(b"PK\x06\x06"):
        raise DocumentProblem("the zip has no directory")
    _, _, _, length, _ = _END_64.unpack(data)
    return place, int(length)
