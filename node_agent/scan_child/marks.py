"""Which files a scan's process is reading, in memory that the agent sees too.

A process that the kernel ends says nothing any more, and a frame for each of ten thousand files would cost more than
reading them. Several threads read at once, each in a place of its own: the file that holds a scan up is the one that
has been read longest without another byte, and not the one that was begun last.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from typing import Final, NamedTuple

SLOT_BYTES: Final = 4_352
# When the file was begun, or read on (CLOCK_MONOTONIC, the same in all processes); the length of its path.
_HEAD: Final = struct.Struct("=QH")
_NS_PER_S: Final = 1_000_000_000


class Reading(NamedTuple):
    """A file that is being read, and for how many seconds no byte of it came."""

    path: str
    idle_s: float


class ReadMarks:
    """The agent opens it to look, the process of the scan to write; each thread writes of its own file only."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._slots = len(self._memory) // SLOT_BYTES
        self._own = threading.local()
        self._used = 0
        self._lock = threading.Lock()

    @staticmethod
    def descriptor(threads: int) -> int:
        """New memory, zeroed, for so many threads and the one that starts them, as a descriptor to hand over.

        Its size is sealed: if the other process could shorten it, a look at it would end this one.
        """
        descriptor = os.memfd_create("read-marks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, SLOT_BYTES * (threads + 1))
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def begin(self, path: str) -> None:
        """This thread reads `path` from now on."""
        data = path.encode()[: SLOT_BYTES - _HEAD.size]
        at = self._place()
        _HEAD.pack_into(self._memory, at, time.monotonic_ns(), 0)
        self._memory[at + _HEAD.size : at + _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, at, time.monotonic_ns(), len(data))
        self._own.length = len(data)

    def progress(self) -> None:
        """This thread got more bytes of its file."""
        _HEAD.pack_into(self._memory, self._place(), time.monotonic_ns(), getattr(self._own, "length", 0))

    def end(self) -> None:
        """This thread has read its file to the end."""
        self._own.length = 0
        self.progress()

    def longest(self) -> Reading | None:
        """The file that waits longest for its next byte, `None` when none is being read.

        Whoever wrote the path may have died half-way, so it is only good to be shown.
        """
        found: list[tuple[int, str]] = []
        for at in range(0, self._slots * SLOT_BYTES, SLOT_BYTES):
            since_ns, length = _HEAD.unpack_from(self._memory, at)
            if length:
                data = self._memory[at + _HEAD.size : min(at + _HEAD.size + length, at + SLOT_BYTES)]
                found.append((since_ns, data.decode(errors="replace")))
        if not found:
            return None
        since_ns, path = min(found)
        return Reading(path, max(0, time.monotonic_ns() - since_ns) / _NS_PER_S)

    def ever(self) -> bool:
        """Was any file begun?"""
        starts = range(0, self._slots * SLOT_BYTES, SLOT_BYTES)
        return any(_HEAD.unpack_from(self._memory, at)[0] for at in starts)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()

    def _place(self) -> int:
        """Where this thread writes; should there be more threads than places, they share."""
        place: int | None = getattr(self._own, "place", None)
        if place is None:
            with self._lock:
                place = self._own.place = self._used % self._slots * SLOT_BYTES
                self._used += 1
        return place
