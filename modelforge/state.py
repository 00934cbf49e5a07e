"""The state folder: its layout, its lock, and the small files that are whole or not there."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path

from bus.errors import ErrorCode, ModelForgeError


class StateFolder:
    """Paths inside one state folder; nothing is written by naming them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = root / "server"
        self.keys = root / "keys"
        self.controller = root / "controller"
        self.logs = root / "logs"
        self.run = root / "run"
        self.endpoint = self.run / "endpoint.json"
        self.lock = self.run / "lock"

    def create(self) -> None:
        """Make the folders, for our user only.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE when the place cannot be written.
        """
        try:
            for folder in (self.root, self.keys, self.controller, self.logs, self.run):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.root, error) from error

    def write_endpoint(self, *, url: str, user: str, credentials: Path) -> None:
        """Tell the commands of this state folder where to dial."""
        document = {"url": url, "user": user, "credentials": str(credentials)}
        write_private(self.endpoint, json.dumps(document, indent=2) + "\n")

    def remove_endpoint(self) -> None:
        """Nobody answers any more; a command says so at once instead of waiting for a dial.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE, also for a folder in the file's place.
        """
        try:
            self.endpoint.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(self.endpoint, error) from error


def unwritable(path: Path, error: OSError) -> ModelForgeError:
    """The typed form of a place that cannot be written."""
    message = f"{path} cannot be written: {error.strerror or error}"
    hint = "Choose another folder with `--state`, or mend the permissions of this one."
    return ModelForgeError(ErrorCode.STORE_UNAVAILABLE, message, hint=hint)


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 that is never seen half-written.

    Raises:
        ModelForgeError: STORE_UNAVAILABLE.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise unwritable(path, error) from error


class StateLock:
    """One stack per state folder. The kernel holds the lock, so that kill -9 frees it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def refuse_if_held(self) -> None:
        """Look whether somebody holds the lock, without writing anything.

        Raises:
            ModelForgeError: STATE_LOCKED naming the pid.
        """
        if self._path.exists():
            self.acquire()
            self.release()

    def acquire(self) -> None:
        """Take the lock and write our pid into it.

        Raises:
            ModelForgeError: STATE_LOCKED naming the pid, STORE_UNAVAILABLE.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(self._path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            folder = self._path.parent.parent
            raise ModelForgeError(
                ErrorCode.STATE_LOCKED, f"{folder} is in use by process {holder}", pid=holder, state=folder
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, because removing it would race with the next holder."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
