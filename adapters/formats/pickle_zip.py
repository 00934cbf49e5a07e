"""Zip containers, read so strictly that every other reader sees the same entries.

torch reads them with another library than Python, and the two forgive different faults: an entry that one takes and
the other refuses is how a pickle gets past a scanner. Whatever a writer of models never writes makes the container
unreadable here; its entries are looked at all the same, because code in one of them is still code.
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from adapters.formats.pickle_source import Unreadable

ZIP_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
MAX_ENTRIES: Final = 100_000
MAX_DIRECTORY_BYTES: Final = 32 * 1024 * 1024
MAX_MEMBER_BYTES: Final = 32 * 1024 * 1024
MAX_SUM_BYTES: Final = 256 * 1024 * 1024
_LOCAL: Final = struct.Struct("<4s5H3I2H")
_CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
_END: Final = struct.Struct("<4s4H2IH")
_END64: Final = struct.Struct("<4sQ2H2I4Q")
_LOCATOR: Final = struct.Struct("<4sIQI")
_LOCAL_MAGIC: Final = b"PK\x03\x04"
_CENTRAL_MAGIC: Final = b"PK\x01\x02"
_END_MAGIC: Final = b"PK\x05\x06"
_END64_MAGIC: Final = b"PK\x06\x06"
_LOCATOR_MAGIC: Final = b"PK\x06\x07"
_MAX_COMMENT_BYTES: Final = 65_535
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_DESCRIPTOR: Final = 0x8
_UTF8: Final = 0x800
_STORED, _DEFLATED = 0, 8
_ZIP64_EXTRA: Final = 1
_FULL32: Final = 0xFFFFFFFF
_FULL16: Final = 0xFFFF
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry, as the central directory has it."""

    name: str
    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_bytes: int
    size_bytes: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What was read of an entry, and what is wrong with it although it could be read."""

    content: bytes
    problem: str | None = None


class Window:
    """An open file from one place on, with the little that a pickle's reader asks of a file."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._begin = begin
        file.seek(begin)

    def read(self, size: int) -> bytes:
        """The next `size` bytes."""
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to `offset`, from here when `whence` is 1."""
        return self._file.seek(offset, 1) if whence else self._file.seek(self._begin + offset)


class Container:
    """An open zip container of `size_bytes`.

    Attributes:
        entries: in the order of the directory.
        problems: what readers would not agree about, the first one first.
    """

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        """Read the directory.

        Raises:
            Unreadable: there is none that can be read.
        """
        self._file = file
        self._size_bytes = size_bytes
        self._left_bytes = MAX_SUM_BYTES
        self.problems: list[str] = []
        count, length, begin = self._end_record()
        if count > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
            raise Unreadable(f"its directory is larger than {MAX_ENTRIES} entries or {MAX_DIRECTORY_BYTES} bytes")
        self._directory_begin = begin
        self.entries = self._directory(self._at(begin, length), count)
        self._check_names()
        self._begins = {entry: self._check_local(entry) for entry in self.entries}
        self._check_places()

    def read(self, entry: Entry) -> Data:
        """A whole entry of at most `MAX_MEMBER_BYTES`.

        Raises:
            Unreadable: it is longer, or cannot be unpacked.
        """
        if entry.size_bytes > MAX_MEMBER_BYTES:
            raise Unreadable(f"it claims {entry.size_bytes} bytes, more than {MAX_MEMBER_BYTES}")
        content = self._unpacked(entry)
        if len(content) != entry.size_bytes:
            return Data(content=content, problem="it is not as long as its container says")
        if zlib.crc32(content) != entry.crc:
            return Data(content=content, problem="its checksum is not the one of its container")
        return Data(content=content)

    def open(self, entry: Entry) -> tuple[BinaryIO, int]:
        """An entry to look into, and how much of it there is to see; one that is not packed is not read for that.

        Raises:
            Unreadable: it cannot be unpacked, or the packed ones are more than `MAX_SUM_BYTES` together.
        """
        begin = self._begin(entry)
        if entry.method == _STORED and not entry.flags & _ENCRYPTED:
            size = max(0, min(entry.packed_bytes, self._size_bytes - begin))
            return cast("BinaryIO", Window(self._file, begin)), size
        content = self._unpacked(entry)
        return io.BytesIO(content), len(content)

    # The directory.

    def _end_record(self) -> tuple[int, int, int]:
        """Entries, bytes and place of the directory."""
        tail_bytes = min(self._size_bytes, _END.size + _MAX_COMMENT_BYTES)
        tail_begin = self._size_bytes - tail_bytes
        tail = self._at(tail_begin, tail_bytes)
        at = tail.rfind(_END_MAGIC)
        if at < 0 or at + _END.size > len(tail):
            raise Unreadable("it begins like a zip container and has no directory")
        _magic, disk, first_disk, here, count, length, begin, comment_bytes = _END.unpack_from(tail, at)
        if at + _END.size + comment_bytes != len(tail) or (disk, first_disk) != (0, 0) or here != count:
            self.problems.append("its directory does not end where the file ends")
        end = tail_begin + at
        locator = self._at(end - _LOCATOR.size, _LOCATOR.size) if end >= _LOCATOR.size else b""
        if locator.startswith(_LOCATOR_MAGIC):
            large = self._end_record64(_LOCATOR.unpack(locator)[2], end - _LOCATOR.size)
            for small, big, full in zip((count, length, begin), large[:3], (_FULL16, _FULL32, _FULL32), strict=True):
                if small not in {big, full}:
                    self.problems.append("its two directories' ends disagree")
            count, length, begin, end = large
        if begin + length != end:
            self.problems.append("its directory is not where its end says")
        return count, length, begin

    def _end_record64(self, at: int, limit: int) -> tuple[int, int, int, int]:
        if at + _END64.size > limit:
            raise Unreadable("the end of its directory is not where it says")
        fields = _END64.unpack(self._at(at, _END64.size))
        if fields[0] != _END64_MAGIC:
            raise Unreadable("the end of its directory is not where it says")
        return fields[7], fields[8], fields[9], at

    def _directory(self, data: bytes, count: int) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        at = 0
        while at < len(data) and len(entries) <= MAX_ENTRIES:
            if at + _CENTRAL.size > len(data) or data[at : at + 4] != _CENTRAL_MAGIC:
                self.problems.append("its directory holds something else than entries")
                break
            entry, at = _entry(data, at)
            entries.append(entry)
        if len(entries) != count:
            self.problems.append("its directory has another number of entries than it says")
        return tuple(entries)

    def _check_names(self) -> None:
        """The reader of torch does not tell upper from lower case, so two names that differ in it are one."""
        if len({entry.raw_name.lower() for entry in self.entries}) != len(self.entries):
            self.problems.append("it has two entries of one name")
        if any(b"\0" in entry.raw_name for entry in self.entries):
            self.problems.append("the name of an entry holds a zero byte")

    # Local headers.

    def _check_local(self, entry: Entry) -> int | None:
        """Where the bytes of an entry begin; `None` when its local header cannot be read."""
        if entry.offset + _LOCAL.size > self._size_bytes:
            self.problems.append("an entry begins behind the end of the file")
            return None
        fields = _LOCAL.unpack(self._at(entry.offset, _LOCAL.size))
        magic, _version, flags, method, _time, _date, crc, packed, size, name_bytes, extra_bytes = fields
        if magic != _LOCAL_MAGIC:
            self.problems.append("an entry does not begin where the directory says")
            return None
        rest = self._at(entry.offset + _LOCAL.size, name_bytes + extra_bytes)
        large = _zip64(rest[name_bytes:], (size, packed))
        same_numbers = (crc, *large) == (entry.crc, entry.size_bytes, entry.packed_bytes)
        # With a descriptor behind the bytes, the numbers in front of them may be left out.
        left_out = bool(flags & _DESCRIPTOR) and (crc, packed, size) in {(0, 0, 0), (0, _FULL32, _FULL32)}
        if rest[:name_bytes] != entry.raw_name or (flags, method) != (entry.flags, entry.method):
            self.problems.append("an entry and the directory disagree about its name or kind")
        elif not same_numbers and not left_out:
            self.problems.append("an entry and the directory disagree about its size or checksum")
        return entry.offset + _LOCAL.size + int(name_bytes) + int(extra_bytes)

    def _check_places(self) -> None:
        """No byte belongs to two entries: that is how a small file unpacks without end."""
        end = 0
        for entry in sorted(self.entries, key=lambda entry: entry.offset):
            begin = self._begins[entry]
            if begin is None:
                continue
            if entry.offset < end or begin + entry.packed_bytes > self._directory_begin:
                self.problems.append("its entries overlap")
                return
            end = begin + entry.packed_bytes

    # Bytes.

    def _begin(self, entry: Entry) -> int:
        begin = self._begins[entry]
        if begin is None:
            raise Unreadable("its place in the container cannot be found")
        return begin

    def _unpacked(self, entry: Entry) -> bytes:
        """The bytes of an entry, one more than `MAX_MEMBER_BYTES` when there are more."""
        begin = self._begin(entry)
        if entry.flags & _ENCRYPTED:
            raise Unreadable("it is encrypted")
        limit_bytes = MAX_MEMBER_BYTES + 1
        if entry.method == _STORED:
            content = self._at(begin, max(0, min(entry.packed_bytes, limit_bytes, self._size_bytes - begin)))
        elif entry.method == _DEFLATED:
            content = self._inflated(begin, entry.packed_bytes, limit_bytes)
        else:
            raise Unreadable(f"it is packed by method {entry.method}, which no writer of models uses")
        self._left_bytes -= len(content)
        if self._left_bytes < 0:
            raise Unreadable(f"the entries are more than {MAX_SUM_BYTES} bytes to look through")
        return content

    def _inflated(self, begin: int, packed_bytes: int, limit_bytes: int) -> bytes:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        parts: list[bytes] = []
        got, at, end = 0, begin, min(begin + packed_bytes, self._size_bytes)
        try:
            while got < limit_bytes and not inflater.eof:
                packed = inflater.unconsumed_tail
                if not packed:
                    packed = self._at(at, min(_CHUNK_BYTES, end - at))
                    at += len(packed)
                part = inflater.decompress(packed, limit_bytes - got)
                if not part and not packed:
                    break
                parts.append(part)
                got += len(part)
        except zlib.error as error:
            raise Unreadable("its packed bytes are damaged") from error
        return b"".join(parts)

    def _at(self, offset: int, size: int) -> bytes:
        if size < 0 or offset < 0 or offset + size > self._size_bytes:
            raise Unreadable("it points behind the end of the file")
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) < size:
            raise Unreadable("the file is shorter than it was")
        return data


def _entry(data: bytes, at: int) -> tuple[Entry, int]:
    """The entry at `at` of the directory, and where the next one begins."""
    fields = _CENTRAL.unpack_from(data, at)
    flags, method, crc, packed, size = fields[3], fields[4], fields[7], fields[8], fields[9]
    name_bytes, extra_bytes, comment_bytes, offset = fields[10], fields[11], fields[12], fields[16]
    name_at = at + _CENTRAL.size
    raw_name = data[name_at : name_at + name_bytes]
    extra = data[name_at + name_bytes : name_at + name_bytes + extra_bytes]
    size, packed, offset = _zip64(extra, (size, packed, offset))
    name = raw_name.decode("utf-8" if flags & _UTF8 else "cp437", "replace")
    entry = Entry(
        name=name,
        raw_name=raw_name,
        flags=flags,
        method=method,
        crc=crc,
        packed_bytes=packed,
        size_bytes=size,
        offset=offset,
    )
    return entry, name_at + name_bytes + extra_bytes + comment_bytes


def _zip64(extra: bytes, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers that do not fit 32 bits are in an extra field, in this order, and only those."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == _ZIP64_EXTRA:
            large = list(
                struct.unpack(
                    f"<{length // 8}Q", extra[at + 4 : at + 4 + length // 8 * 8].ljust(length // 8 * 8, b"\0")
                )
            )
            return tuple(large.pop(0) if number == _FULL32 and large else number for number in numbers)
        at += 4 + length
    return numbers
