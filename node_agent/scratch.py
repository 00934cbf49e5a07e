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
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger(__name__)


@contextmanager
def own_scratch(parent: Path) -> Iterator[Path]:
    """A fresh folder below `parent` (mode 0700), removed at the end; leftovers of dead agents are removed first.

    Raises:
        ModelForgeError: NODE_FAULT when the folder cannot be made.
    """
    for leftover in sorted(parent.glob(f"{PREFIX}*")):
        _remove_unless_locked(leftover)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = os.open(folder, _FLAGS)
    except OSError as error:
        message = f"no scratch folder can be made: {error.strerror or error}"
        raise ModelForgeError(ErrorCode.NODE_FAULT, message) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        # Removed while the lock is held: a successor must not take the folder for its own leftovers half-way.
        _remove(folder)
        os.close(lock)


def _remove_unless_locked(folder: Path) -> None:
    try:
        lock = os.open(folder, _FLAGS)
    except OSError as error:  # another's, a link, or gone by now
        _log.info("leftover %s stays: %s", folder.name, error.strerror)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its agent lives
    else:
        _log.info("removing %s, left by an agent that was killed", folder.name)
        _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _log.warning("the scratch folder %s could not be removed", folder.name)
