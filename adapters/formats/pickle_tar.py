"""The members of a tar, as torch's oldest format has them, found with the reader that torch uses.

Nothing is extracted. That reader takes the length of a header's extension into memory, so the file is given to it
through a window that refuses large pieces.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

from adapters.formats.pickle_source import Exhausted, Unreadable

BLOCK_BYTES: Final = 512
MAX_MEMBERS: Final = 10_000
_MAX_PIECE_BYTES: Final = 1024 * 1024


class _Window(io.RawIOBase):
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_PIECE_BYTES:
            raise Exhausted(f"a header of the tar is larger than {_MAX_PIECE_BYTES} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def is_tar(head: bytes) -> bool:
    """Does a tar's reader take the first `BLOCK_BYTES` of a file for a header?"""
    if len(head) < BLOCK_BYTES:
        return False
    try:
        tarfile.TarInfo.frombuf(head[:BLOCK_BYTES], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def members(file: BinaryIO) -> Iterator[tuple[str, BinaryIO | None, int]]:
    """Name, content and size of each member; content is `None` for what is no file.

    Raises:
        Unreadable: a header cannot be read, or there are more than `MAX_MEMBERS`.
    """
    count = 0
    try:
        with tarfile.TarFile.taropen("", "r", cast("BinaryIO", _Window(file))) as archive:
            for member in archive:
                count += 1
                if count > MAX_MEMBERS:
                    raise Exhausted(f"the tar has more than {MAX_MEMBERS} members")
                content = archive.extractfile(member) if member.isreg() else None
                yield member.name, cast("BinaryIO | None", content), member.size
    except (tarfile.TarError, ValueError, OSError, EOFError) as error:
        raise Unreadable("a header of the tar cannot be read") from error
