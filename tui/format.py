"""Numbers for people, in few cells: durations, sizes, moments, digests, and what to show when there is none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_MILLISECONDS_BELOW_S: Final = 0.1
_TENTHS_BELOW_S: Final = 10
_SECOND_MS: Final = 1_000
_KIB: Final = 1_024
_TEN, _HUNDRED = 10, 100
_DIGEST_CHARS: Final = 12


def duration(seconds: float) -> str:
    """A duration in at most six cells: `33ms`, `4.2s`, `42s`, `4m12s`, `2d04h`; never negative (clocks differ)."""
    seconds = max(seconds, 0.0)
    if seconds < _MILLISECONDS_BELOW_S:
        return f"{seconds * _SECOND_MS:.0f}ms"
    if round(seconds, 1) < _TENTHS_BELOW_S:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"


def running(seconds: float) -> str:
    """A duration that still grows: whole seconds, so that it is painted once a second and not more often."""
    whole = max(int(seconds), 0)
    return f"{whole}s" if whole < _MINUTE else duration(whole)


def milliseconds(value: float | None) -> str | None:
    """A measured duration: `0.8 ms`, `812 ms`, `4.21 s`."""
    if value is None:
        return None
    if value < _TENTHS_BELOW_S:
        return f"{value:.1f} ms"
    return f"{value:.0f} ms" if value < _SECOND_MS else f"{value / _SECOND_MS:.2f} s"


def size(value: int | None) -> str | None:
    """Bytes with a binary unit in three figures: `512 B`, `91.2 MiB`, `1.25 GiB`."""
    if value is None:
        return None
    amount, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < _KIB or unit == "TiB":
            break
        amount /= _KIB
    decimals = 0 if unit == "B" or abs(amount) >= _HUNDRED else 1 if abs(amount) >= _TEN else 2
    return f"{amount:.{decimals}f} {unit}"


def clock(moment: datetime) -> str:
    """The time of day, UTC: `12:03:11`."""
    return moment.astimezone(UTC).strftime("%H:%M:%S")


def stamp(moment: datetime) -> str:
    """Date and time of day, UTC: `2026-11-29 12:03:11`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def digest(value: str) -> str:
    """The first characters of a digest, without its algorithm."""
    return value.removeprefix("sha256:")[:_DIGEST_CHARS]


def na(reason: str | None) -> str:
    """A value that is missing, and why."""
    return f"n/a ({reason})" if reason else "n/a"
