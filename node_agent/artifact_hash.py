"""Digests of files: in a few threads, with cancellation, and proof that no file changed meanwhile."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import FileEntry, Manifest
from node_agent.artifact_root import ArtifactRoot, Member, Stamp, changed

DEFAULT_THREADS: Final = 2
# Large enough that the interpreter's own work between two reads does not count, small enough for a processor's cache.
BLOCK_BYTES: Final = 1024 * 1024


class Watch:
    """The reins of one long read, shared by its threads."""

    def __init__(self, threads: int = DEFAULT_THREADS) -> None:
        self.threads = threads
        self._stop = threading.Event()

    def cancel(self) -> None:
        """End the read: every thread raises CANCELLED at its next block."""
        self._stop.set()

    def check(self) -> None:
        """Raise CANCELLED when the read was cancelled."""
        if self._stop.is_set():
            raise ModelForgeError(ErrorCode.CANCELLED, "the files were not read to the end")

    def begins(self, member: Member) -> None:
        """A file is about to be read; any thread says it."""

    def hashed(self, member: Member, sha256: str) -> None:
        """A file was read to the end and did not change meanwhile; any thread says it."""

    def advance(self, *, files: int = 0, size_bytes: int = 0) -> None:
        """So many more files are done, and so many more bytes; any thread says it, at every block."""


def hash_files(root: ArtifactRoot, folder: str, members: tuple[Member, ...], watch: Watch) -> Manifest:
    """The manifest of `members`: SHA-256 of each, computed by `watch.threads` threads at once; blocks.

    Raises:
        ModelForgeError: ARTIFACT_CHANGED when a file changed while it was read, ARTIFACT_UNREADABLE,
            PATH_OUTSIDE_ROOT, CANCELLED.
    """
    digests = digests_of(root, folder, members, watch)
    return Manifest(files=tuple(entry_of(member, digests[member.path]) for member in members))


def entry_of(member: Member, sha256: str) -> FileEntry:
    """The manifest's line of a file."""
    return FileEntry(path=member.path, size_bytes=member.stamp.size_bytes, sha256=sha256)


def digests_of(root: ArtifactRoot, folder: str, members: tuple[Member, ...], watch: Watch) -> dict[str, str]:
    """SHA-256 by path, each file read once; raises as `hash_files`.

    Every thread takes the next file when it has ended one, the largest first: so the last ones to end are small. A task
    for each file would cost more than a small file.
    """
    if not members:
        return {}
    queue = _Shared(iter(sorted(members, key=lambda member: -member.stamp.size_bytes)))
    digests: dict[str, str] = {}
    with ThreadPoolExecutor(watch.threads, thread_name_prefix="hash") as pool:
        futures = [pool.submit(_work, root, folder, queue, watch) for _ in range(min(watch.threads, len(members)))]
        try:
            for future in futures:
                digests |= future.result()
        except BaseException:
            # Or the other threads would read gigabytes for an answer that nobody wants any more.
            _abandon(futures, queue, watch)
            raise
    return digests


class _Shared:
    """An iterator that several threads take from."""

    def __init__(self, members: Iterator[Member]) -> None:
        self._members = members
        self._lock = threading.Lock()

    def take(self) -> Member | None:
        with self._lock:
            return next(self._members, None)

    def empty(self) -> None:
        with self._lock:
            self._members = iter(())


def _abandon(futures: list[Future[dict[str, str]]], queue: _Shared, watch: Watch) -> None:
    queue.empty()
    for future in futures:
        future.cancel()
    watch.cancel()


def _work(root: ArtifactRoot, folder: str, queue: _Shared, watch: Watch) -> dict[str, str]:
    buffer = memoryview(bytearray(BLOCK_BYTES))
    digests: dict[str, str] = {}
    while (member := queue.take()) is not None:
        try:
            digests[member.path] = _hash_one(root, folder, member, watch, buffer)
        except BaseException:
            queue.empty()
            raise
    return digests


def _hash_one(root: ArtifactRoot, folder: str, member: Member, watch: Watch, buffer: memoryview) -> str:
    watch.check()
    watch.begins(member)
    with root.open_member(folder, member) as fd:
        hasher = hashlib.sha256()
        left = member.stamp.size_bytes
        while left > 0:
            watch.check()
            count = read_into(fd, member, buffer)
            if count == 0:
                raise changed(member.path, "it became shorter while it was read")
            if count > left:
                raise changed(member.path, "it grew while it was read")
            hasher.update(buffer[:count])
            left -= count
            watch.advance(size_bytes=count)
        unchanged(fd, member)
    sha256 = hasher.hexdigest()
    watch.hashed(member, sha256)
    watch.advance(files=1)
    return sha256


def read_into(fd: int, member: Member, buffer: memoryview) -> int:
    """Read on from the descriptor's place; how many bytes there were.

    Raises:
        ModelForgeError: ARTIFACT_UNREADABLE.
    """
    try:
        return os.readv(fd, [buffer])
    except OSError as error:
        message = f"{member.path}: {error.strerror or 'cannot be read'}"
        raise ModelForgeError(ErrorCode.ARTIFACT_UNREADABLE, message, file=member.path) from error


def unchanged(fd: int, member: Member) -> None:
    """Raise ARTIFACT_CHANGED unless the open file is as it was listed; one that grew behind its end has another size."""
    if Stamp.of(os.fstat(fd)) != member.stamp:
        raise changed(member.path, "it changed while it was read")
