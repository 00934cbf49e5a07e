"""Is the ledger that is open still the one that lies on the disk?

SQLite goes on writing into a file that was removed, renamed or truncated under it: every commit would be confirmed,
and be gone with the process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bus.errors import ErrorCode, ModelForgeError

_WAL: Final = "-wal"


class FileWatch:
    """Remembers which files were opened; used on the writer's thread alone."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._wal = self._path.with_name(self._path.name + _WAL)
        opened = self._path.stat()
        self._identity = (opened.st_dev, opened.st_ino)
        self._size_bytes = opened.st_size
        self._wal_identity: tuple[int, int] | None = None

    def fault(self) -> ModelForgeError | None:
        """STORE_UNAVAILABLE naming what became of the files, or `None` while they are the ones that were opened."""
        found = self._look()
        if found is None:
            return None
        hint = "Stop the controller and put back the state folder's ledger with its side files."
        return ModelForgeError(ErrorCode.STORE_UNAVAILABLE, f"the ledger {self._path} {found}", hint=hint)

    def _look(self) -> str | None:
        try:
            now = self._path.stat()
        except OSError as error:
            return f"is no longer there ({error.strerror})"
        if (now.st_dev, now.st_ino) != self._identity:
            return "was replaced by another file while it was open"
        # No statement of ours gives pages back, so the file only grows.
        if now.st_size < self._size_bytes:
            return "was truncated while it was open"
        self._size_bytes = now.st_size
        return self._look_at_log()

    def _look_at_log(self) -> str | None:
        try:
            log = self._wal.stat()
        except OSError as error:
            return f"lost its write-ahead log ({error.strerror})" if self._wal_identity else None
        identity = (log.st_dev, log.st_ino)
        if self._wal_identity is not None and identity != self._wal_identity:
            return "has another write-ahead log than the one that was opened"
        self._wal_identity = identity
        return None
