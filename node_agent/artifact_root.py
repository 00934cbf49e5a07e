"""The artifact root: which names may be opened, and proof that what was opened lies inside it (spec P5, B4).

A path is first opened without any access (`O_PATH`: no side effect on a FIFO or a device), then the kernel is asked
where that very handle leads, and only this handle is opened again for reading. So a link that is swapped between
the check and the use changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn, Self

from bus.errors import ErrorCode, ModelForgeError
from bus.text import clean_line

MAX_DEPTH: Final = 32
MAX_FOLDERS: Final = 4_096
MAX_PATH_CHARS: Final = 1_024
_HANDLES: Final = "/proc/self/fd"
_PATH_FLAGS: Final = os.O_PATH | os.O_CLOEXEC
# Without O_NONBLOCK, the open of a FIFO that took a file's place would wait for a writer for ever.
_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes when a file changes. The change time is in it, because a writer can set the other one back."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """The stamp of a file's status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Member:
    """One regular file below a folder: its path relative to that folder (POSIX), and its stamp when it was seen."""

    path: str
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What lies below a folder, at one moment.

    Attributes:
        members: every regular file, sorted by path.
        folders: the folder itself (`.`), every folder in it, and those above it up to the root (`..`, `../..`). A folder
            that takes another's place and goes again leaves no trace in any file; its own change time moves.
    """

    members: tuple[Member, ...]
    folders: tuple[Member, ...]


class ArtifactRoot:
    """The node's artifact root, held open for one operation; close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Open the root.

        Raises:
            ModelForgeError: NODE_FAULT when it is gone; the configuration was checked at start.
        """
        try:
            self._fd = os.open(path, _PATH_FLAGS | os.O_DIRECTORY)
        except OSError as error:
            raise ModelForgeError(
                ErrorCode.NODE_FAULT, f"the artifact root cannot be opened: {error.strerror}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the handle back."""
        os.close(self._fd)

    def files(self, folder: str, *, max_files: int) -> tuple[Member, ...]:
        """The members of `listing`; raises the same."""
        return self.listing(folder, max_files=max_files).members

    def listing(self, folder: str, *, max_files: int) -> Listing:
        """Every regular file below `folder`, and the folders; links are followed inside the root only.

        Raises:
            ModelForgeError: PATH_OUTSIDE_ROOT, PATH_NOT_FOUND, PATH_NOT_A_FOLDER, ARTIFACT_EMPTY,
                ARTIFACT_UNSUPPORTED_FILE (FIFO, socket, device, link loop, a name that cannot be recorded),
                ARTIFACT_UNREADABLE, SCAN_TOO_LARGE (more than `max_files` files, too many folders, too deep).
        """
        relative = check_relative(folder)
        walk = _Walk(self, max_files)
        with self._folder(relative) as handle:
            walk.enter(handle, "", ())
            above = tuple(self._above(relative))
        if not walk.members:
            raise ModelForgeError(ErrorCode.ARTIFACT_EMPTY, "the folder holds no file", path=folder)
        members = sorted(walk.members, key=lambda member: member.path)
        return Listing(members=tuple(members), folders=(*walk.folders, *above))

    @contextmanager
    def open_member(self, folder: str, member: Member) -> Iterator[int]:
        """A readable descriptor of `member` as it was listed.

        Raises:
            ModelForgeError: ARTIFACT_CHANGED when another file lies there now; ARTIFACT_UNREADABLE; PATH_OUTSIDE_ROOT.
        """
        relative = f"{check_relative(folder)}/{member.path}"
        with self.handle(relative, self._fd, member.path) as handle:
            if Stamp.of(os.fstat(handle)) != member.stamp:
                raise changed(member.path, "it changed while the folder was read")
            try:
                fd = os.open(f"{_HANDLES}/{handle}", _READ_FLAGS)
            except OSError as error:
                _refuse(error, member.path)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def handle(self, name: str, at: int, shown: str) -> Iterator[int]:
        """An `O_PATH` handle of `name` relative to the handle `at`, proven to lie inside the root."""
        try:
            handle = os.open(name, _PATH_FLAGS, dir_fd=at)
        except OSError as error:
            _refuse(error, shown)
        try:
            if not _lies_in(_real_path(handle), _real_path(self._fd)):
                raise ModelForgeError(ErrorCode.PATH_OUTSIDE_ROOT, "a link leads out of the artifact root", file=shown)
            yield handle
        finally:
            os.close(handle)

    def _above(self, relative: str) -> Iterator[Member]:
        """The folders between `relative` and the root, the nearest first; as they are named, also where one is a link."""
        for number, parent in enumerate(list(PurePosixPath(relative).parents)[:-1], 1):
            with self._folder(str(parent)) as handle:
                yield Member("/".join([".."] * number), Stamp.of(os.fstat(handle)))

    @contextmanager
    def _folder(self, relative: str) -> Iterator[int]:
        with ExitStack() as stack:
            try:
                handle = stack.enter_context(self.handle(relative, self._fd, relative))
            except _MissingError as error:
                message = "there is nothing at this path below the artifact root"
                raise ModelForgeError(ErrorCode.PATH_NOT_FOUND, message, path=relative) from error
            if not stat.S_ISDIR(os.fstat(handle).st_mode):
                raise ModelForgeError(ErrorCode.PATH_NOT_A_FOLDER, "the path is not a folder", path=relative)
            yield handle


class _Walk:
    """One depth-first listing; bounded in files, folders and depth, and free of link cycles."""

    def __init__(self, root: ArtifactRoot, max_files: int) -> None:
        self.members: list[Member] = []
        self.folders: list[Member] = []
        self._root = root
        self._max_files = max_files

    def enter(self, handle: int, prefix: str, above: tuple[tuple[int, int], ...]) -> None:
        status = os.fstat(handle)
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            raise ModelForgeError(
                ErrorCode.ARTIFACT_UNSUPPORTED_FILE, "a link leads back to a folder above it", file=prefix or "."
            )
        self.folders.append(Member(prefix or ".", Stamp.of(status)))
        if len(self.folders) > MAX_FOLDERS or len(above) >= MAX_DEPTH:
            raise too_large(f"more than {MAX_FOLDERS} folders, or deeper than {MAX_DEPTH}")
        for name, status in self._entries(handle, prefix):
            path = f"{prefix}/{name}" if prefix else name
            if len(path) > MAX_PATH_CHARS:
                raise too_large(f"a path is longer than {MAX_PATH_CHARS} characters")
            if stat.S_ISREG(status.st_mode):
                # No link: it lies in this folder, which was proven to lie inside the root. One call of the kernel a file.
                self._add(path, status)
                continue
            with self._root.handle(name, handle, path) as child:
                self._take(child, path, (*above, identity))

    def _take(self, handle: int, path: str, above: tuple[tuple[int, int], ...]) -> None:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            self.enter(handle, path, above)
        elif stat.S_ISREG(status.st_mode):
            self._add(path, status)
        else:
            what = _file_kind(status.st_mode)
            raise ModelForgeError(
                ErrorCode.ARTIFACT_UNSUPPORTED_FILE,
                f"{path!r} is a {what}, not a file or a folder",
                file=path,
                type=what,
            )

    def _add(self, path: str, status: os.stat_result) -> None:
        if len(self.members) >= self._max_files:
            raise too_large(f"more than {self._max_files} files")
        self.members.append(Member(path, Stamp.of(status)))

    def _entries(self, handle: int, prefix: str) -> list[tuple[str, os.stat_result]]:
        """Names in a folder, sorted, each with its own status: the one of a link is the link's."""
        shown = prefix or "."
        try:
            fd = os.open(".", _READ_FLAGS | os.O_DIRECTORY, dir_fd=handle)
        except OSError as error:
            _refuse(error, shown)
        found: list[tuple[str, os.stat_result]] = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if len(found) >= self._max_files + MAX_FOLDERS:
                        raise too_large(f"a folder holds more than {self._max_files} files")
                    found.append((_recordable(entry.name, shown), _status(entry, prefix)))
        except OSError as error:
            _refuse(error, shown)
        finally:
            os.close(fd)
        return sorted(found, key=lambda pair: pair[0])


def _status(entry: os.DirEntry[str], prefix: str) -> os.stat_result:
    """The status of an entry itself; one that vanished after it was listed is named."""
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        _refuse(error, f"{prefix}/{entry.name}" if prefix else entry.name)


def _real_path(handle: int) -> str:
    """Where the kernel says that `handle` leads now."""
    return os.readlink(f"{_HANDLES}/{handle}")  # noqa: PTH115 -- ten thousand files; a `Path` costs more than the call


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


@lru_cache(maxsize=16)
def check_relative(path: str) -> str:
    """`path` without `.` and doubled slashes; `.` is the root itself.

    Raises:
        ModelForgeError: PATH_OUTSIDE_ROOT for an absolute path or one with `..`, PATH_NOT_FOUND for one that no file
            can have.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise ModelForgeError(
            ErrorCode.PATH_OUTSIDE_ROOT, "the path must be relative to the artifact root, without `..`", path=path
        )
    if "\0" in path or len(path) > MAX_PATH_CHARS or not _is_clean(path):
        raise ModelForgeError(ErrorCode.PATH_NOT_FOUND, "no artifact has such a name", path=path)
    return str(pure)


def changed(file: str, what: str) -> ModelForgeError:
    """The error of a file that is not what it was."""
    return ModelForgeError(ErrorCode.ARTIFACT_CHANGED, f"{file}: {what}", file=file)


def too_large(what: str) -> ModelForgeError:
    """The error of a folder that is more than one model."""
    return ModelForgeError(ErrorCode.SCAN_TOO_LARGE, what)


class _MissingError(ModelForgeError):
    """Nothing is there: a dangling link below a folder, an unknown path at its top."""


def _is_clean(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a byte that is not UTF-8, which the file system interface smuggles in as a surrogate
        return False
    return clean_line(text, MAX_PATH_CHARS + 1) == text


def _recordable(name: str, folder: str) -> str:
    """`name`, unless a manifest cannot hold it or a screen must not show it: an approval is given by reading it."""
    if not _is_clean(name):
        shown = clean_line(os.fsencode(name).decode(errors="replace"))
        raise ModelForgeError(
            ErrorCode.ARTIFACT_UNSUPPORTED_FILE,
            f"the name {shown!r} in {folder!r} is not UTF-8, or holds control characters",
            file=shown,
        )
    return name


def _refuse(error: OSError, shown: str) -> NoReturn:
    """Turn what the kernel said about `shown` into a code."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            message = f"{shown}: the link leads to nothing, or the file vanished"
            raise _MissingError(ErrorCode.ARTIFACT_UNREADABLE, message, file=shown) from error
        case errno.ELOOP:
            message = f"{shown}: a loop of links"
            raise ModelForgeError(ErrorCode.ARTIFACT_UNSUPPORTED_FILE, message, file=shown) from error
        case _:
            message = f"{shown}: {error.strerror or 'cannot be read'}"
            raise ModelForgeError(ErrorCode.ARTIFACT_UNREADABLE, message, file=shown) from error


def _file_kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISBLK, "block device"),
    ):
        if test(mode):
            return name
    return "thing of an unknown type"
