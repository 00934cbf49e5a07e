"""One controller for one ledger: a lock that the kernel takes back when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bus.errors import ErrorCode, ModelForgeError

FILE = "controller.lock"


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the lock of this state folder.

    Two controllers would share out the requests between them, and each would know half of what is contested.

    Raises:
        ModelForgeError: STATE_LOCKED while another process holds it, STORE_UNAVAILABLE when the folder cannot be
            written.
    """
    try:
        descriptor = os.open(state / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, f"{state / FILE}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"another controller uses the state folder {state}"
            raise ModelForgeError(ErrorCode.STATE_LOCKED, message) from error
        yield
    finally:
        os.close(descriptor)
