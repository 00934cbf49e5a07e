"""One folder of the artifact root, read completely: its manifest and what its headers and documents say."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from adapters.formats.evidence import EvidenceCollector
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import Manifest, SetEvidence
from bus.messages.blobs import MAX_BLOB_BYTES
from node_agent.artifact_hash import BLOCK_BYTES, DEFAULT_THREADS, Watch, digests_of, entry_of, read_into, unchanged
from node_agent.artifact_root import ArtifactRoot, Member, Stamp, changed, too_large
from node_agent.artifact_verify import compare_stamps
from node_agent.hash_cache import is_settled

# As long as a real digest.
_NO_DIGEST: Final = "0" * 64
# What a manifest's line holds besides the path, at most; a path may double its length by what JSON escapes.
_LINE_BYTES: Final = 150


class ScanWatch(Watch):
    """The reins of a scan, told of each of its steps. Made before the scan begins: its own age counts."""

    def __init__(self, threads: int = DEFAULT_THREADS) -> None:
        super().__init__(threads)
        self._began_ns = time.time_ns()

    def listed(self, members: tuple[Member, ...], to_hash_bytes: int) -> None:
        """These are the files; so many bytes have no known digest."""

    def hashing(self) -> None:
        """All headers were read."""

    def hashed(self, member: Member, sha256: str) -> None:
        """See `Watch.hashed`."""
        if is_settled(member.stamp, self._began_ns):
            self.remember(member.stamp, sha256)

    def remember(self, stamp: Stamp, sha256: str) -> None:
        """This digest was computed now, and the next scan may use it, whatever becomes of this one; any thread says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What a scan found.

    Attributes:
        files_hashed, files_cached: how many digests were computed, and how many were known.
    """

    manifest: Manifest
    evidence: SetEvidence
    files_hashed: int = 0
    files_cached: int = 0


def scan_folder(
    root: Path,
    folder: str,
    *,
    max_files: int,
    watch: ScanWatch,
    known: Mapping[Stamp, str] | None = None,
    collector: Callable[[], EvidenceCollector] = EvidenceCollector,
) -> Scanned:
    """Hash every file of `folder` (relative to `root`) and read its evidence; blocks, in `watch.threads` threads.

    A file of one block is read once, for both; of a larger one the headers are read first, its weights only to be
    hashed. `known` are digests that need not be computed again.

    Raises:
        ModelForgeError: the codes of `ArtifactRoot.files`; SCAN_TOO_LARGE when the manifest would be larger than any
            that can be sent, before a byte is read; SCAN_LIMIT_EXCEEDED when a file's headers need more memory than
            there is; ARTIFACT_CHANGED when anything in the folder changed between the beginning and the end, so that
            digests and evidence belong to one and the same set; CANCELLED.
    """
    with ArtifactRoot(root) as artifacts:
        members = artifacts.files(folder, max_files=max_files)
        refuse_too_large(members)
        digests = {member.path: known[member.stamp] for member in members if known and member.stamp in known}
        cached = len(digests)
        watch.listed(members, sum(one.stamp.size_bytes for one in members if one.path not in digests))
        evidence = _Headers(artifacts, folder, watch, collector()).read(members, digests)
        watch.hashing()
        missing = tuple(member for member in members if member.path not in digests)
        digests |= digests_of(artifacts, folder, missing, watch)
        compare_stamps(artifacts, folder, members)
    return Scanned(
        manifest=Manifest(files=tuple(entry_of(member, digests[member.path]) for member in members)),
        evidence=evidence,
        files_hashed=len(members) - cached,
        files_cached=cached,
    )


def refuse_too_large(members: tuple[Member, ...]) -> None:
    """Can the manifest of `members` be sent? Asked before the files are hashed, which may take hours.

    Raises:
        ModelForgeError: SCAN_TOO_LARGE when it cannot.
    """
    at_most = sum(2 * len(member.path.encode()) + _LINE_BYTES for member in members)
    if at_most <= MAX_BLOB_BYTES:
        return
    size_bytes = len(canonical_json(Manifest(files=tuple(entry_of(member, _NO_DIGEST) for member in members))))
    if size_bytes > MAX_BLOB_BYTES:
        raise too_large(f"{len(members)} files make a manifest of {size_bytes} bytes, more than {MAX_BLOB_BYTES}")


class _Held(io.BytesIO):
    """The bytes of a small file, which still has its descriptor: another scanner is handed that."""

    def __init__(self, data: bytes, descriptor: int) -> None:
        super().__init__(data)
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


class _Headers:
    """Reads the evidence of every file, and the digests of the small ones on the way."""

    def __init__(self, artifacts: ArtifactRoot, folder: str, watch: Watch, collector: EvidenceCollector) -> None:
        self._artifacts, self._folder, self._watch, self._collector = artifacts, folder, watch, collector
        self._buffer = memoryview(bytearray(BLOCK_BYTES))

    def read(self, members: tuple[Member, ...], digests: dict[str, str]) -> SetEvidence:
        for member in members:
            self._watch.check()
            self._watch.begins(member)
            with self._artifacts.open_member(self._folder, member) as fd:
                if member.stamp.size_bytes <= BLOCK_BYTES:
                    data = self._small(fd, member)
                    self._collect(member, _Held(data, fd))
                    if member.path not in digests:
                        unchanged(fd, member)
                        sha256 = digests[member.path] = hashlib.sha256(data).hexdigest()
                        self._watch.hashed(member, sha256)
                        self._watch.advance(size_bytes=len(data))
                else:
                    with open(fd, "rb", closefd=False) as file:
                        self._collect(member, file)
            self._watch.advance(files=1)
        return self._collector.result()

    def _small(self, fd: int, member: Member) -> bytes:
        """All of a file that fits the buffer."""
        size, seen = member.stamp.size_bytes, 0
        while seen < size:
            count = read_into(fd, member, self._buffer[seen:])
            if count == 0:
                raise changed(member.path, "it became shorter while it was read")
            seen += count
        return bytes(self._buffer[:size])

    def _collect(self, member: Member, file: BinaryIO) -> None:
        try:
            self._collector.add(member.path, file, member.stamp.size_bytes)
        except OSError as error:
            message = f"{member.path}: {error.strerror or 'cannot be read'}"
            raise ModelForgeError(ErrorCode.ARTIFACT_UNREADABLE, message, file=member.path) from error
        except (MemoryError, RecursionError) as error:
            what = "memory" if isinstance(error, MemoryError) else "nesting"
            message = f"{member.path}: reading its headers needs more {what} than a scan may use"
            raise ModelForgeError(ErrorCode.SCAN_LIMIT_EXCEEDED, message, file=member.path) from error
