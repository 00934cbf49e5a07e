"""What the header of a NumPy file says about its array: plain numbers, or a pickle behind the header.

The kind of an array has many spellings, so those that are plain are listed and all others hold objects.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from adapters.formats.pickle_source import Unreadable

MAGIC: Final = b"\x93NUMPY"
MAX_HEADER_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 8
_LENGTH_BYTES: Final = {1: 2, 2: 4, 3: 4}
_PLAIN: Final = re.compile(r"[<>|=]?(?:[biufcSUaV]\d{0,9}|\?|[mM]8(?:\[\d{0,9}[A-Za-z]{1,2}(?:/\d{1,9})?\])?)")
_OBJECT: Final = re.compile(r"[<>|=]?O[48]?|object")
# A whole number of Python 2 in a header that Python 2 wrote.
_OLD_NUMBER: Final = re.compile(r"(?<=\d)L\b")
_FIELD_ITEMS: Final = (2, 3)
_TITLED_ITEMS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Where the array begins; `plain`: it holds no objects; `listed`: its kind is one that this module knows."""

    end: int
    plain: bool
    listed: bool


def read_header(file: BinaryIO) -> Header:
    """The header of a NumPy file that `file` is at the beginning of; `file` is left where the array begins.

    Raises:
        Unreadable: it is none that NumPy reads, or longer than `MAX_HEADER_BYTES`.
    """
    head = file.read(_HEAD_BYTES)
    length_bytes = _LENGTH_BYTES.get(head[6]) if len(head) == _HEAD_BYTES else None
    if length_bytes is None:
        raise Unreadable("the array has a version that NumPy does not know")
    length = int.from_bytes(file.read(length_bytes), "little")
    if length > MAX_HEADER_BYTES:
        raise Unreadable(f"the header of the array claims {length} bytes, more than {MAX_HEADER_BYTES}")
    header = file.read(length)
    if len(header) < length:
        raise Unreadable("the file ends inside the array's header")
    kind = _kind(header, "utf-8" if head[6] == max(_LENGTH_BYTES) else "latin-1")
    plain = _is_plain(kind)
    listed = plain or (isinstance(kind, str) and _OBJECT.fullmatch(kind) is not None)
    return Header(end=_HEAD_BYTES + length_bytes + length, plain=plain, listed=listed)


def _kind(header: bytes, encoding: str) -> Any:
    problem = Unreadable("the header of the array says nothing that NumPy reads")
    try:
        text = header.decode(encoding)
        try:
            said = ast.literal_eval(text)
        except SyntaxError:
            said = ast.literal_eval(_OLD_NUMBER.sub("", text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise problem from error
    if not isinstance(said, dict) or "descr" not in said:
        raise problem
    return said["descr"]


def _is_plain(kind: Any) -> bool:
    """Is it on the list: a kind of numbers or texts, some of one kind, or fields of them?"""
    match kind:
        case str():
            return _PLAIN.fullmatch(kind) is not None
        case (inner, shape) if isinstance(kind, tuple):
            return _is_shape(shape) and _is_plain(inner)
        case list():
            return all(_is_plain_field(field) for field in kind)
    return False


def _is_plain_field(field: Any) -> bool:
    if not isinstance(field, tuple) or len(field) not in _FIELD_ITEMS:
        return False
    name, inner, *shape = field
    titled = isinstance(name, tuple) and len(name) == _TITLED_ITEMS and all(isinstance(one, str) for one in name)
    return (isinstance(name, str) or titled) and _is_plain(inner) and all(_is_shape(one) for one in shape)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, int) or (isinstance(shape, tuple) and all(isinstance(length, int) for length in shape))
