"""Memory of a process, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bus.messages.evidence import HostMemory

_PROC: Final = Path("/proc")
_KIB: Final = 1_024


def read_host_memory(pid: int) -> HostMemory:
    """Memory of process `pid` in bytes: resident, proportional share, and the highest resident so far.

    The resident figure of a forked child counts the pages it shares with its template; the proportional one does
    not. A process that is gone, or that may not be looked at, gives `None` with the reason.
    """
    try:
        status = _fields(_PROC / str(pid) / "status")
    except OSError as error:
        return HostMemory(reason=_reason(error))
    if "VmRSS" not in status:
        return HostMemory(reason="the process has ended and was not reaped yet")
    reason = None
    pss: int | None = None
    try:
        pss = _fields(_PROC / str(pid) / "smaps_rollup").get("Pss")
    except OSError as error:
        reason = f"proportional share: {_reason(error)}"
    return HostMemory(rss_bytes=status["VmRSS"], pss_bytes=pss, peak_rss_bytes=status.get("VmHWM"), reason=reason)


def _fields(file: Path) -> dict[str, int]:
    """The `Name: 123 kB` lines of a file below /proc, in bytes."""
    found: dict[str, int] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdigit():  # noqa: PLR2004 -- a value and its unit
            found[name] = int(words[0]) * _KIB
    return found


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError | ProcessLookupError):
        return "the process is gone"
    return error.strerror or type(error).__name__
