"""Lists of SHA-256 digests, as `sha256sum` writes them: read strictly, because a set is compared with one (spec G4).

A line that is not understood is refused with its number and never passed over: what is passed over is not compared.
"""

from __future__ import annotations

import re
from typing import Final

from adapters.formats.documents import DocumentProblem

MAX_LIST_BYTES: Final = 32 * 1024 * 1024
MAX_LINES: Final = 100_000
MAX_PATH_BYTES: Final = 4_096
_GNU: Final = re.compile(r"(\\?)([0-9A-Fa-f]+) [ *](.+)", re.DOTALL)
_BSD: Final = re.compile(r"(\\?)([A-Z][A-Z0-9/-]*) \((.+)\) = ([0-9A-Fa-f]+)", re.DOTALL)
_HEX_DIGITS: Final = 64
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)
_UNESCAPED: Final = {"\\": "\\", "n": "\n", "r": "\r"}
_ESCAPED: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})
_STDIN: Final = "-"


class SumsProblem(DocumentProblem):
    """What is wrong with a list of digests.

    Attributes:
        line: the number of the line, from 1; `None` when it is the list as a whole.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


def parse(data: bytes) -> dict[str, str]:
    """The list as relative POSIX path -> 64 lower-case hex digits, sorted by path.

    Both forms of coreutils are read (`HEX  name`, `HEX *name`, and `SHA256 (name) = HEX`), with names escaped behind
    a backslash, and lines that end in CR LF. Empty lines mean nothing; everything else must be a file and its digest.

    Raises:
        SumsProblem: too large, not UTF-8, empty; or the first line that is not understood, names a path outside the
            folder, or names a file for the second time.
    """
    if len(data) > MAX_LIST_BYTES:
        raise SumsProblem(f"the list is larger than {MAX_LIST_BYTES} bytes")
    if data.rstrip(b"\r\n").count(b"\n") >= MAX_LINES:
        raise SumsProblem(f"the list has more than {MAX_LINES} lines")
    entries: dict[str, str] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        text = _text(line.removesuffix(b"\r"), number)
        if not text:
            continue
        path, digest = _entry(text, number)
        if path in entries:
            raise SumsProblem("it names a file that an earlier line names too", number)
        entries[path] = digest
    if not entries:
        raise SumsProblem("the list names no file")
    return dict(sorted(entries.items()))


def render(entries: dict[str, str]) -> bytes:
    """The one canonical list of these entries: what `parse` reads back, sorted by path, the same for equal entries."""
    return b"".join(_line(path, digest) for path, digest in sorted(entries.items()))


def normal_path(path: str) -> str:
    """A relative path without its `.` parts.

    Raises:
        SumsProblem: it is empty, absolute, longer than `MAX_PATH_BYTES`, names a folder, or leaves its own.
    """
    if len(path.encode()) > MAX_PATH_BYTES:
        raise SumsProblem(f"a name is longer than {MAX_PATH_BYTES} bytes")
    if "\0" in path:
        raise SumsProblem("a name holds a zero byte")
    if path.startswith("/"):
        raise SumsProblem("a name is absolute; names are relative to the set's folder")
    if path.endswith(("/", "/.")):
        raise SumsProblem("a name is that of a folder")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise SumsProblem("a name leaves the set's folder by `..`")
    if not parts:
        raise SumsProblem("a name is empty")
    return "/".join(parts)


def _text(line: bytes, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise SumsProblem("it is not UTF-8", number) from error


def _entry(text: str, number: int) -> tuple[str, str]:
    if text.startswith("#"):
        raise SumsProblem("it is a comment, which a list to compare with may not hold", number)
    escaped, name, digest = _fields(text, number)
    if len(digest) != _HEX_DIGITS:
        raise SumsProblem(f"its digest has {len(digest)} hex digits, SHA-256 has {_HEX_DIGITS}", number)
    if name == _STDIN:
        raise SumsProblem("it is the digest of a pipe, which names no file", number)
    try:
        return normal_path(_unescaped(name) if escaped else name), digest.lower()
    except SumsProblem as problem:
        raise SumsProblem(str(problem), number) from problem


def _fields(text: str, number: int) -> tuple[bool, str, str]:
    if match := _GNU.fullmatch(text):
        return bool(match[1]), match[3], match[2]
    if match := _BSD.fullmatch(text):
        if match[2] != "SHA256":
            raise SumsProblem("its digest is not a SHA-256", number)
        return bool(match[1]), match[3], match[4]
    raise SumsProblem("it is not a SHA-256 and a name, as `sha256sum` writes them", number)


def _unescaped(name: str) -> str:
    def meant(match: re.Match[str]) -> str:
        if match[1] not in _UNESCAPED:
            raise SumsProblem("a name has an escape that `sha256sum` does not write")
        return _UNESCAPED[match[1]]

    return _ESCAPE.sub(meant, name)


def _line(path: str, digest: str) -> bytes:
    escaped = path.translate(_ESCAPED)
    mark = "" if escaped == path else "\\"
    name = f"./{path}" if path == _STDIN else escaped
    return f"{mark}{digest}  {name}\n".encode()
