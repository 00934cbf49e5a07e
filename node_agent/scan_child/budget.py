"""Processor time of one scan: hashing a terabyte takes an hour, reading a header must not.

Two figures of the kernel bound it. The hard one is fixed once, after the listing and before the first byte of a file is
read, from what the listing says: this much to read all headers, this much to hash so many bytes. The soft one ends the
process earlier (SIGXCPU): it is set anew for the listing, for each file whose headers are read, and for the hashing. A
file that is made to keep its reader busy is so found out after seconds, also in a set that may be hashed for hours.
"""

from __future__ import annotations

import math
import resource
import time
from typing import Final

LISTING_S: Final = 30
# A file with its name, its handles and its headers takes under a millisecond; this is what the slowest machine gets.
FILE_S: Final = 0.02
HEADERS_S: Final = 120
HASHING_S: Final = 30
# SHA-256 without the processor's own instruction for it, on an old core, reads five times as much.
SLOWEST_BYTES_PER_S: Final = 32 * 1024 * 1024


def headers_s(files: int) -> int:
    """All headers of so many files together, in seconds."""
    return math.ceil(HEADERS_S + FILE_S * files)


def hashing_s(files: int, size_bytes: int) -> int:
    """The digests of so many files with so many bytes, in seconds."""
    return math.ceil(HASHING_S + FILE_S * files + size_bytes / SLOWEST_BYTES_PER_S)


class CpuBudget:
    """The limits of this process; each step only ever lowers the hard one."""

    def __init__(self, max_files: int, file_cpu_s: int) -> None:
        """The listing begins."""
        self._file_s = file_cpu_s
        self._hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        self._headers_until_s = math.inf
        self._renew_at_s = 0.0
        self._soft(time.process_time() + LISTING_S + FILE_S * max_files)

    def listed(self, files: int, size_bytes: int) -> None:
        """The listing is done: what the whole scan may still use is fixed now."""
        used_s = time.process_time()
        self._headers_until_s = used_s + headers_s(files)
        whole = math.ceil(self._headers_until_s) + hashing_s(files, size_bytes)
        self._hard = whole if self._hard == resource.RLIM_INFINITY else min(whole, self._hard)
        self._soft(self._headers_until_s)

    def file(self) -> None:
        """The headers of another file are read next. Asked for every file, so the kernel is asked only now and then."""
        used_s = time.process_time()
        if used_s >= self._renew_at_s:
            # Whole seconds are all that the kernel counts: a file gets its time, and at most one second more.
            self._renew_at_s = used_s + 0.5
            self._soft(min(used_s + self._file_s + 0.5, self._headers_until_s))

    def hashing(self) -> None:
        """Only bytes are counted and hashed from now on."""
        resource.setrlimit(resource.RLIMIT_CPU, (self._hard, self._hard))

    def _soft(self, until_s: float) -> None:
        limit = math.ceil(until_s)
        if self._hard != resource.RLIM_INFINITY:
            limit = min(limit, self._hard)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, self._hard))
