"""Lets a test run a part of itself as nobody, although the interpreter may lie where only root may look.

To be called in a process made for it: it enters a mount namespace of its own, in which the folders on the way to
what is needed can be searched by everybody, and drops root for good. Nothing outside that process changes.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

NOBODY: Final = 65534
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def become_nobody(needed: Iterable[Path]) -> None:
    """Drop root; the `needed` paths and this interpreter stay readable. Raises OSError where a mount is refused."""
    if _libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    _mount("none", Path("/"), None, _MS_REC | _MS_PRIVATE)
    closed: dict[Path, list[Path]] = {}
    for path in {Path(sys.base_prefix), Path(sys.prefix), *needed}:
        ancestor = _closed_ancestor(path)
        if ancestor is not None:
            closed.setdefault(ancestor, []).append(path)
    for ancestor, paths in closed.items():
        _open(ancestor, paths)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _closed_ancestor(path: Path) -> Path | None:
    for ancestor in reversed(path.parents):
        if not ancestor.stat().st_mode & stat.S_IXOTH:
            return ancestor
    return None


def _open(ancestor: Path, paths: list[Path]) -> None:
    """Put an open, empty folder over a closed one, and what is needed of it back into its place."""
    holds = []
    for path in paths:
        hold = Path(tempfile.mkdtemp())
        _mount(str(path), hold, None, _MS_BIND | _MS_REC)
        holds.append(hold)
    _mount("none", ancestor, "tmpfs", 0, "mode=755")
    for path, hold in zip(paths, holds, strict=True):
        path.mkdir(parents=True, exist_ok=True)
        _mount(str(hold), path, None, _MS_BIND | _MS_REC)


def _mount(source: str, target: Path, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return value.encode() if value is not None else None

    if _libc.mount(source.encode(), str(target).encode(), text(kind), flags, text(data)):
        raise OSError(ctypes.get_errno(), f"mount on {target}")
