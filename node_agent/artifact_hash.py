"""Digests of files: in a few threads, with cancellation, and proof that no file changed meanwhile."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import FileEntry, Manifest
from node_agent.artifact_root import ArtifactRoot, Member, Stamp, changed

_DEFAULT_THREADS: Final = 2


class Watch:
    """The reins of one long read, shared by its threads."""

    def __init__(self, threads: int = _DEFAULT_THREADS) -> None:
        self.threads = threads
        self._stop = threading.Event()

    def cancel(self) -> None:
        """End the read: every thread raises CANCELLED at its next block."""
        self._stop.set()

    def check(self) -> None:
        """Raise CANCELLED when the read was cancelled."""
        if self._stop.is_set():
            raise ModelForgeError(ErrorCode.CANCELLED, "the files were not read to the end")


class _WatchedFile(io.FileIO):
    """A file that stops reading when it is told to, or when it turns out longer than it was."""

    def __init__(self, fd: int, member: Member, watch: Watch) -> None:
        super().__init__(fd, closefd=False)
        self._member = member
        self._watch = watch
        self._seen_bytes = 0

    def readinto(self, buffer: object, /) -> int:
        self._watch.check()
        count = super().readinto(buffer)  # type: ignore[arg-type]  # whatever hashlib hands over is a buffer
        self._seen_bytes += count
        if self._seen_bytes > self._member.stamp.size_bytes:
            raise changed(self._member.path, "it grew while it was read")
        return count


def hash_files(root: ArtifactRoot, folder: str, members: tuple[Member, ...], watch: Watch) -> Manifest:
    """The manifest of `members`: SHA-256 of each, computed by `watch.threads` threads at once; blocks.

    Raises:
        ModelForgeError: ARTIFACT_CHANGED when a file changed while it was read, ARTIFACT_UNREADABLE,
            PATH_OUTSIDE_ROOT, CANCELLED.
    """
    with ThreadPoolExecutor(watch.threads, thread_name_prefix="hash") as pool:
        futures = [pool.submit(_hash_one, root, folder, member, watch) for member in members]
        try:
            return Manifest(files=tuple(future.result() for future in futures))
        except BaseException:
            # Or the other threads would read gigabytes for an answer that nobody wants any more.
            _abandon(futures, watch)
            raise


def _abandon(futures: list[Future[FileEntry]], watch: Watch) -> None:
    for future in futures:
        future.cancel()
    watch.cancel()


def _hash_one(root: ArtifactRoot, folder: str, member: Member, watch: Watch) -> FileEntry:
    watch.check()
    with root.open_member(folder, member) as fd:
        try:
            with _WatchedFile(fd, member, watch) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            message = f"{member.path}: {error.strerror or 'cannot be read'}"
            raise ModelForgeError(ErrorCode.ARTIFACT_UNREADABLE, message, file=member.path) from error
        if Stamp.of(os.fstat(fd)) != member.stamp:
            raise changed(member.path, "it changed while it was read")
    return FileEntry(path=member.path, size_bytes=member.stamp.size_bytes, sha256=digest)
