"""The agent's own folder for temporary files: made for one life, and swept after a life that ended by kill -9.

The folder is locked while its agent lives. A folder of ours that nobody locks belongs to the dead: whoever starts
next below the same parent removes it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bus.errors import ErrorCode, ModelForgeError

PREFIX: Final = "modelforge-agent-"
MAX_TRIES: Final = 8
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger(__name__)


@contextmanager
def own_scratch(parent: Path) -> Iterator[Path]:
    """A fresh folder below `parent` (mode 0700), removed at the end; leftovers of dead agents are removed first.

    Raises:
        ModelForgeError: NODE_FAULT when the folder cannot be made.
    """
    try:
        for leftover in sorted(parent.glob(f"{PREFIX}*")):
            _remove_unless_locked(leftover)
        folder, lock = _locked_folder(parent)
    except OSError as error:
        message = f"no scratch folder can be made: {error.strerror or error}"
        raise ModelForgeError(ErrorCode.NODE_FAULT, message) from error
    try:
        yield folder
    finally:
        # Removed while the lock is held: a successor must not take the folder for its own leftovers half-way.
        _remove(folder)
        os.close(lock)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder and the descriptor that locks it.

    Another agent that starts now may sweep the folder before it is locked. So it counts only when it is locked and
    still there; else the next one is tried. Each sweeper meets each folder once, so few tries are enough.
    """
    for _ in range(MAX_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = _lock(folder)
        if lock is not None:
            if _is_same(folder, lock):
                return folder, lock
            os.close(lock)
        _log.info("%s was swept while it was made; making another", folder.name)
    raise ModelForgeError(ErrorCode.NODE_FAULT, f"{MAX_TRIES} scratch folders were swept by agents that start now")


def _lock(folder: Path) -> int | None:
    """The lock of `folder`, or `None` when somebody else holds it or the folder is gone."""
    try:
        lock = os.open(folder, _FLAGS)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _is_same(folder: Path, lock: int) -> bool:
    try:
        return os.path.samestat(folder.stat(follow_symlinks=False), os.fstat(lock))
    except FileNotFoundError:
        return False


def _remove_unless_locked(folder: Path) -> None:
    try:
        lock = _lock(folder)
    except OSError as error:  # another's, or a link
        _log.info("leftover %s stays: %s", folder.name, error.strerror)
        return
    if lock is None:
        return  # its agent lives, or it is gone by now
    _log.info("removing %s, left by an agent that was killed", folder.name)
    _remove(folder)
    os.close(lock)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _log.warning("the scratch folder %s could not be removed", folder.name)
