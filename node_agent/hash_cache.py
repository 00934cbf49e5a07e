"""Digests that earlier scans computed, so that a re-scan reads only what changed. Never asked by a probe (spec P5).

A digest is remembered under everything that the kernel says of a file: device, inode, size, and both times in
nanoseconds. That is evidence and no proof, for two reasons, and so the probe reads every byte again:

- The clock of a file system ticks slowly: a write in the same tick as the one before leaves the same times. So a file
  that was changed less than `SETTLED_S` before it was read is not remembered; the next scan reads it again.
- Stores into a shared mapping move the times when their page gets dirty, not at each store. A process that still writes
  through a mapping can change bytes behind a stamp for some seconds; a set that is being written is none yet.

The agent's own process writes the file, whole and atomically; a scan's process only reads it. A file that is damaged,
of another version or too large is no cache: everything is read again, and a new one is written.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from bus.files import read_bounded
from node_agent.artifact_root import Stamp

FILE_NAME: Final = "digests.v1"
MAX_ENTRIES: Final = 100_000
# FAT keeps times in steps of two seconds, and no file system in use in larger ones.
SETTLED_S: Final = 2.0
_MAGIC: Final = b"modelforge digests 1\n"
# device, inode, size, mtime, ctime, digest
_ENTRY: Final = struct.Struct(">QQQqq32s")
_DIGEST_BYTES: Final = 32
_MAX_FILE_BYTES: Final = len(_MAGIC) + _DIGEST_BYTES + MAX_ENTRIES * _ENTRY.size
_NS_PER_S: Final = 1_000_000_000
_log = logging.getLogger(__name__)


def is_settled(stamp: Stamp, read_at_ns: int) -> bool:
    """May the digest of a file with this stamp, read from `read_at_ns` (wall clock) on, be remembered?

    The change time alone counts: the other one is the writer's to choose. One in the future is a clock that was set
    back, and nothing is known of such a file.
    """
    return stamp.ctime_ns + int(SETTLED_S * _NS_PER_S) <= read_at_ns


def read(folder: Path) -> dict[Stamp, str]:
    """What `folder` remembers; nothing when there is no cache or a damaged one."""
    try:
        data = read_bounded(folder / FILE_NAME, _MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        _log.warning("the cache of digests is not used: %s", error.strerror)
        return {}
    head = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[head:]
    whole = data.startswith(_MAGIC) and len(body) % _ENTRY.size == 0
    if not whole or hashlib.sha256(body).digest() != data[len(_MAGIC) : head]:
        _log.warning("the cache of digests is damaged, and not used")
        return {}
    return {Stamp(*entry[:5]): entry[5].hex() for entry in _ENTRY.iter_unpack(body)}


class HashCache:
    """The writing side; one for each agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def remember(self, digests: Mapping[Stamp, str]) -> None:
        """Add digests; beyond `MAX_ENTRIES` the oldest are forgotten. Blocks; called from threads.

        What cannot be written is logged and costs nothing but the next scan's time.
        """
        if not digests:
            return
        try:
            with self._lock:
                known = read(self.folder)
                # A file that was rewritten keeps its place on the disk: its older stamps will never be seen again.
                places = {(stamp.device, stamp.inode) for stamp in digests}
                kept = {stamp: sha256 for stamp, sha256 in known.items() if (stamp.device, stamp.inode) not in places}
                self._write([*kept.items(), *digests.items()][-MAX_ENTRIES:])
        except OSError as error:
            _log.warning("the cache of digests could not be written: %s", error.strerror)

    def _write(self, entries: Iterable[tuple[Stamp, str]]) -> None:
        body = b"".join(
            _ENTRY.pack(
                stamp.device, stamp.inode, stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns, bytes.fromhex(sha256)
            )
            for stamp, sha256 in entries
        )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{FILE_NAME}-", dir=self.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            # Not synced: a file that a power failure cut short is a damaged cache, and so none.
            Path(temporary).replace(self.folder / FILE_NAME)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
