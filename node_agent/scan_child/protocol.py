"""What an agent and the process of one scan say to each other: options down at the start, frames up."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Annotated, Final, Literal

import msgspec

from bus.errors import Failure
from bus.messages.artifacts import ScanProgress
from bus.messages.base import Message, Natural, Positive, Record
from bus.messages.evidence import Layer

# As JSON carries bytes a third longer, one part with its envelope is well below the largest frame.
MAX_PART_BYTES: Final = 128 * 1024
PAGE_BYTES: Final = 8_192
_HEAD: Final = struct.Struct(">H")

Part = Literal["manifest", "evidence", "digests"]


class ScanOptions(Record, frozen=True, kw_only=True):
    """One scan: where, and within which bounds.

    Attributes:
        parent_pid: the process whose death must be this one's.
        page: descriptor of the page on which the file that is being read is noted.
        root: the artifact root, absolute on this node.
        path: the folder, relative to the root.
        cache: folder with the digests of earlier scans; empty: none is used.
        file_cpu_s: processor time that the reading of one file's headers may take.
    """

    parent_pid: int
    page: int
    root: str
    path: str
    max_files: Positive
    threads: Positive
    memory_limit_bytes: Positive
    cache: str = ""
    file_cpu_s: Positive = 20


class ScanStarted(Message, tag="scan.started.v1", frozen=True, kw_only=True):
    """The layers around this process, each as it really is."""

    layers: tuple[Layer, ...]


class ScanProgressed(Message, tag="scan.progressed.v1", frozen=True, kw_only=True):
    """How far it is; sent at most twice a second."""

    progress: ScanProgress


class ScanPart(Message, tag="scan.part.v1", frozen=True, kw_only=True):
    """A piece of the result; the pieces of a part come in order."""

    part: Part
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_PART_BYTES)]


class ScanDone(Message, tag="scan.done.v1", frozen=True, kw_only=True):
    """All parts were sent."""

    files_hashed: Natural
    files_cached: Natural


class ScanFailed(Message, tag="scan.failed.v1", frozen=True, kw_only=True):
    """The scan ended typed."""

    failure: Failure


ScanFrame = ScanStarted | ScanProgressed | ScanPart | ScanDone | ScanFailed

# device, inode, size, mtime and ctime of a file, and its SHA-256.
DigestRow = tuple[int, int, int, int, int, str]


class LastFile:
    """A page of memory that both processes see: which file is being read now.

    A process that the kernel ends says nothing any more, and a frame for each of ten thousand files would cost more
    than reading them.
    """

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, PAGE_BYTES)

    @staticmethod
    def descriptor() -> int:
        """A new page, zeroed, as a descriptor to hand over."""
        descriptor = os.memfd_create("last-file", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, PAGE_BYTES)
        return descriptor

    def note(self, path: str) -> None:
        """`path` is being read from now on; nothing is, when it is empty."""
        data = path.encode()[: PAGE_BYTES - _HEAD.size]
        self._page[: _HEAD.size + len(data)] = _HEAD.pack(len(data)) + data

    def read(self) -> str:
        """The last path that was noted; whoever wrote it may have died half-way, so it is only good to be shown."""
        (length,) = _HEAD.unpack(self._page[: _HEAD.size])
        return self._page[_HEAD.size : _HEAD.size + length].decode(errors="replace")

    def close(self) -> None:
        """Give the memory back."""
        self._page.close()
