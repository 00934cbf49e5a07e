"""Digests of files: in a few threads, with progress, cancellation, and proof that no file changed meanwhile."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import FileEntry, Manifest
from node_agent.artifact_root import ArtifactRoot, Member, Stamp, changed

_DEFAULT_THREADS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a scan or a verification is."""

    files: int
    files_total: int
    done_bytes: int
    total_bytes: int


class Watch:
    """The reins of one long read, shared by its threads: cancellation and progress.

    `on_progress` is called from the hashing threads, one call at a time.
    """

    def __init__(self, on_progress: Callable[[Progress], None] | None = None, threads: int = _DEFAULT_THREADS) -> None:
        self.threads = threads
        self._on_progress = on_progress
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._progress = Progress(files=0, files_total=0, done_bytes=0, total_bytes=0)

    @property
    def progress(self) -> Progress:
        """The last known state."""
        return self._progress

    def cancel(self) -> None:
        """End the read: every thread raises CANCELLED at its next block."""
        self._stop.set()

    def check(self) -> None:
        """Raise CANCELLED when the read was cancelled."""
        if self._stop.is_set():
            raise ModelForgeError(ErrorCode.CANCELLED, "the files were not read to the end")

    def begin(self, files_total: int, total_bytes: int) -> None:
        """The whole is known now."""
        self._progress = Progress(files=0, files_total=files_total, done_bytes=0, total_bytes=total_bytes)

    def add(self, *, files: int = 0, done_bytes: int = 0) -> None:
        """Some of it is done."""
        with self._lock:
            last = self._progress
            self._progress = Progress(
                files=last.files + files,
                files_total=last.files_total,
                done_bytes=last.done_bytes + done_bytes,
                total_bytes=last.total_bytes,
            )
            if self._on_progress is not None:
                self._on_progress(self._progress)


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
        self._watch.add(done_bytes=count)
        return count


def hash_files(root: ArtifactRoot, folder: str, members: tuple[Member, ...], watch: Watch) -> Manifest:
    """The manifest of `members`: SHA-256 of each, computed by `watch.threads` threads at once; blocks.

    Raises:
        ModelForgeError: ARTIFACT_CHANGED when a file changed while it was read, ARTIFACT_UNREADABLE,
            PATH_OUTSIDE_ROOT, CANCELLED.
    """
    watch.begin(len(members), sum(member.stamp.size_bytes for member in members))
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
    watch.add(files=1)
    return FileEntry(path=member.path, size_bytes=member.stamp.size_bytes, sha256=digest)
