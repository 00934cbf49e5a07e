"""What an agent and the process of one scan say to each other: options down at the start, frames up."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from bus.errors import Failure
from bus.messages.artifacts import ScanProgress
from bus.messages.base import Message, Natural, Positive, Record
from bus.messages.evidence import Layer

# As JSON carries bytes a third longer, one part with its envelope is well below the largest frame.
MAX_PART_BYTES: Final = 128 * 1024
# Bounds one frame of digests: 200 bytes each at most.
MAX_DIGEST_ROWS: Final = 500

Part = Literal["manifest", "evidence"]
_Time = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# device, inode, size, mtime and ctime of a file, and its SHA-256.
DigestRow = tuple[Natural, Natural, Natural, _Time, _Time, Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}\\Z")]]


class ScanOptions(Record, frozen=True, kw_only=True):
    """One scan: where, and within which bounds.

    Attributes:
        parent_pid: the process whose death must be this one's.
        marks: descriptor of the memory on which the files that are being read are noted (`ReadMarks`).
        root: the artifact root, absolute on this node.
        path: the folder, relative to the root.
        cache: folder with the digests of earlier scans; empty: none is used.
        file_cpu_s: processor time that the reading of one file's headers may take.
    """

    parent_pid: int
    marks: int
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


class ScanDigests(Message, tag="scan.digests.v1", frozen=True, kw_only=True):
    """Digests of files that were just read to the end and may be remembered, whatever becomes of the scan."""

    rows: Annotated[tuple[DigestRow, ...], msgspec.Meta(max_length=MAX_DIGEST_ROWS)]


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


ScanFrame = ScanStarted | ScanProgressed | ScanDigests | ScanPart | ScanDone | ScanFailed
