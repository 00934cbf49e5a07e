"""How many of how many bytes, in words for a failure."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def size_of(done_bytes: int, total_bytes: int) -> str:
    """Such as `61.0 of 150.0 GB`: both in the unit of the whole."""
    for unit, factor in _UNITS:
        if total_bytes >= factor:
            return f"{done_bytes / factor:.1f} of {total_bytes / factor:.1f} {unit}"
    return f"{done_bytes} of {total_bytes} bytes"
