"""Blobs on the disk: chunks that arrive in order, one file for each, whole or not there (design section 4).

Everything here blocks; `controller.blobs` runs it on one thread of its own, so no two of these calls overlap. A file
is named by its shelf (the lease or the request that it is for) and the digest that was announced; it gets that name
after all its bytes are on the disk and have this digest. Until then it is an unfinished file, whose length says how
much of it arrived: an upload goes on where a crash ended it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import BlobRef
from bus.messages.blobs import MAX_BLOB_BYTES, BlobState

_OWNER: Final = re.compile(r"(node|user)-[a-z][a-z0-9-]{0,23}")
_SHELF: Final = re.compile(r"[a-z0-9-]{1,40}")
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_FILE: Final = re.compile(r"[a-z0-9-]{1,40}\.[0-9a-f]{64}(?:\.(?P<size>[0-9]{1,12})\.part)?")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A link, a pipe or a device in the place of a file is never followed, waited for or written to.
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Not the file's fault: the same read may work a moment later.
_SHORT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobLimits:
    """How much may lie here: for one caller, and in all. What is announced counts, not what has arrived."""

    caller_bytes: int
    caller_blobs: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a blob lies: whose it is (`node-NAME` or `user-NAME`), and the lease or request that it is for."""

    owner: str
    shelf: str


class BlobFiles:
    """The files under one folder. Every method raises STORE_UNAVAILABLE when the disk refuses."""

    def __init__(self, folder: Path, limits: BlobLimits) -> None:
        self._folder = folder
        self._limits = limits

    def put(self, place: Place, blob: BlobRef, offset: int, data: bytes) -> BlobState:
        """Take the chunk at `offset`, if it is the next one; how much is there now, on the disk.

        A chunk that is there already, or that would leave a gap, changes nothing: the reply says where the next one
        begins. An empty one asks, and makes no file.

        Raises:
            ModelForgeError: BLOB_REFUSED (a size that is none, bytes that have another digest, too much of this caller
                or of all), STORE_UNAVAILABLE.
        """
        whole, part = _names(place, blob)
        if not 0 < blob.size_bytes <= MAX_BLOB_BYTES:
            raise _refused(f"a payload has 1 to {MAX_BLOB_BYTES} bytes, not {blob.size_bytes}")
        if offset + len(data) > blob.size_bytes:
            raise _refused(f"the chunk ends behind the {blob.size_bytes} bytes that were announced")
        with self._owner(place.owner, create=bool(data)) as folder:
            if folder is None:
                return BlobState(received_bytes=0, complete=False)
            done = _size(folder, whole)
            if done is not None:
                return _whole(folder, whole, done, blob)
            received = _size(folder, part)
            if received == blob.size_bytes:
                return _finish(folder, (whole, part), blob)
            if not data or offset != (received or 0):
                return BlobState(received_bytes=received or 0, complete=False)
            if received is None:
                self._admit(place.owner, blob)
            return _append(folder, (whole, part), blob, data)

    def read(self, place: Place, blob: BlobRef) -> bytes:
        """All bytes of a finished blob, compared with their digest once more.

        Raises:
            ModelForgeError: BLOB_REFUSED when it is not there, or is not what it was; STORE_UNAVAILABLE when the
                machine is short of something for the moment.
        """
        whole, _ = _names(place, blob)
        with self._owner(place.owner, create=False) as folder:
            try:
                file = None if folder is None else _open(folder, whole, os.O_RDONLY)
                data = b"" if file is None else _read(file)
            except OSError as error:
                if error.errno in _SHORT_OF:
                    raise
                raise _refused(f"the payload {blob.sha256} cannot be read: {error.strerror}") from error
        if file is None:
            raise _refused(f"the payload {blob.sha256} is not here, or not all of it")
        if len(data) != blob.size_bytes or sha256(data).hexdigest() != blob.sha256:
            raise _refused(f"the payload {blob.sha256} is not what was sent")
        return data

    def forget(self, place: Place, blob: BlobRef | None = None) -> int:
        """Remove all that lies on this shelf, or this blob alone, finished or not; how many files that were."""
        beginning = f"{place.shelf}." if blob is None else f"{place.shelf}.{blob.sha256}"
        return self._remove(place.owner, lambda name, _age_s: name.startswith(beginning))

    def sweep(self, keep_s: float) -> int:
        """Remove what nobody touched for `keep_s`; how many files that were."""
        return sum(self._remove(owner, lambda _name, age_s: age_s > keep_s) for owner in self._owners())

    def _remove(self, owner: str, gone: Callable[[str, float], bool]) -> int:
        removed = 0
        with self._owner(owner, create=False) as folder:
            if folder is None:
                return 0
            now = time.time()
            for name, found in _files(folder):
                if gone(name, now - found.st_mtime):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                        removed += 1
        return removed

    def _admit(self, owner: str, blob: BlobRef) -> None:
        """One more blob of this caller, if there is room for it."""
        used = {name: self._announced(name) for name in self._owners()}
        mine, limits = used.get(owner, []), self._limits
        if len(mine) >= limits.caller_blobs:
            raise _refused(f"{len(mine)} payloads of this caller wait to be used, and no more may")
        if sum(mine) + blob.size_bytes > limits.caller_bytes:
            raise _refused(f"the payloads of this caller would have more than {limits.caller_bytes} bytes")
        if sum(map(sum, used.values())) + blob.size_bytes > limits.total_bytes:
            raise _refused(f"the payloads of all callers would have more than {limits.total_bytes} bytes")

    def _announced(self, owner: str) -> list[int]:
        with self._owner(owner, create=False) as folder:
            return [] if folder is None else [_announced(name, found) for name, found in _files(folder)]

    def _owners(self) -> list[str]:
        with _typed():
            try:
                return sorted(entry.name for entry in self._folder.iterdir() if _OWNER.fullmatch(entry.name))
            except FileNotFoundError:
                return []

    @contextmanager
    def _owner(self, owner: str, *, create: bool) -> Iterator[int | None]:
        """The caller's folder, opened; `None` when there is none and none is made."""
        if _OWNER.fullmatch(owner) is None:
            raise _refused("no caller has such a name")
        with _typed():
            if create:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                (self._folder / owner).mkdir(mode=0o700, exist_ok=True)
            try:
                folder = os.open(self._folder / owner, _FOLDER)
            except FileNotFoundError:
                yield None
                return
            try:
                yield folder
            finally:
                os.close(folder)


def _names(place: Place, blob: BlobRef) -> tuple[str, str]:
    """The file's name when it is whole, and before that."""
    if _SHELF.fullmatch(place.shelf) is None or _HEX.fullmatch(blob.sha256) is None:
        raise _refused("no payload has such a name")
    whole = f"{place.shelf}.{blob.sha256}"
    return whole, f"{whole}.{blob.size_bytes}.part"


def _append(folder: int, names: tuple[str, str], blob: BlobRef, data: bytes) -> BlobState:
    _, part = names
    file = _open(folder, part, os.O_RDWR | os.O_CREAT)
    if file is None:
        raise _refused("the payload went away while it was written")
    with os.fdopen(file, "r+b", buffering=0):
        before = os.fstat(file).st_size
        try:
            _write(file, before, data)
        except OSError:
            if not before:
                with suppress(OSError):
                    os.unlink(part, dir_fd=folder)
            raise
    received = before + len(data)
    if received < blob.size_bytes:
        return BlobState(received_bytes=received, complete=False)
    return _finish(folder, names, blob)


def _finish(folder: int, names: tuple[str, str], blob: BlobRef) -> BlobState:
    """All bytes are on the disk: give them their name if they have their digest."""
    whole, part = names
    file = _open(folder, part, os.O_RDONLY)
    if file is None or sha256(_read(file)).hexdigest() != blob.sha256:
        os.unlink(part, dir_fd=folder)
        raise _refused("the bytes do not have the digest that was announced")
    os.rename(part, whole, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
    return BlobState(received_bytes=blob.size_bytes, complete=True)


def _write(file: int, at: int, data: bytes) -> None:
    """Put the chunk behind what is there and onto the disk, or take back what of it was written."""
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(file, data[written:], at + written)
        os.fsync(file)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, at)
        raise


def _whole(folder: int, name: str, size_bytes: int, blob: BlobRef) -> BlobState:
    """It is there. Its age begins anew, so that no sweep takes what is about to be used."""
    if size_bytes != blob.size_bytes:
        raise _refused(f"the payload has {size_bytes} bytes, not {blob.size_bytes}")
    os.utime(name, dir_fd=folder, follow_symlinks=False)
    return BlobState(received_bytes=size_bytes, complete=True)


def _size(folder: int, name: str) -> int | None:
    file = _open(folder, name, os.O_RDONLY)
    if file is None:
        return None
    try:
        return os.fstat(file).st_size
    finally:
        os.close(file)


def _open(folder: int, name: str, flags: int) -> int | None:
    """The regular file of this name, or `None` when there is nothing; anything else is no file of ours."""
    try:
        file = os.open(name, flags | _SAFE, 0o600, dir_fd=folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "something that is no file lies in its place")
    return file


def _read(file: int) -> bytes:
    with os.fdopen(file, "rb") as handle:
        return handle.read(MAX_BLOB_BYTES + 1)


def _files(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """Every file that this module could have made; whatever else lies there is left alone."""
    for name in os.listdir(folder):
        if _FILE.fullmatch(name) is None:
            continue
        with suppress(FileNotFoundError):
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def _announced(name: str, found: os.stat_result) -> int:
    match = _FILE.fullmatch(name)
    size = None if match is None else match["size"]
    return found.st_size if size is None else int(size)


@contextmanager
def _typed() -> Iterator[None]:
    """Turn what the disk says into STORE_UNAVAILABLE."""
    try:
        yield
    except OSError as error:
        message = f"the folder of large payloads refused: {error.strerror}"
        raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, message) from error


def _refused(message: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.BLOB_REFUSED, message)
