"""The arguments of a pickle's instructions, read as leniently as the two unpicklers of Python read them.

`pickletools` is stricter than both: it knows no `0x10`, no text behind a zero byte, no line without an end. Whatever
one of the two goes on behind must be gone on behind here, or a pickle with code would pass for no pickle at all. A value
on which the two may differ, or that is too long to keep, is `OTHER`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from adapters.formats.pickle_source import Exhausted, Source, Unreadable
from adapters.formats.pickle_values import OTHER

Read = Callable[[Source], Any]
_KNOWN_DIGITS: Final = 40
_KNOWN_INT_BYTES: Final = 16
_BOOLS: Final = {b"00": False, b"01": True}
_SPACE: Final = b" \t\n\v\f\r"
# Wider than what any of the readers takes: only what is outside ends a pickle.
_INT: Final = re.compile(rb"[+-]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9_]+)")
_INDEX: Final = re.compile(rb"[+-]?[0-9_]+")
# Of what a place of the memo that is too long to keep may consist.
_LONG_INDEX: Final = re.compile(rb"[ \t\v\f\r0-9_+-]+(?:\x00.*)?", re.DOTALL)
# Of what the names of importable things consist; a line of prose has more.
_NAMED: Final = re.compile(r"[\w.-]*")
_FLOAT: Final = re.compile(
    rb"[+-]?(?:inf(?:inity)?|nan|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:e[+-]?[0-9_]+)?)", re.IGNORECASE
)


def one_byte(source: Source) -> int:
    """A number of one byte."""
    return source.take(1)[0]


def two_bytes(source: Source) -> int:
    """A number of two bytes."""
    return int.from_bytes(source.take(2), "little")


def signed(source: Source) -> int:
    """A number of four bytes with a sign."""
    return int.from_bytes(source.take(4), "little", signed=True)


def four_bytes(source: Source) -> int:
    """A number of four bytes."""
    return int.from_bytes(source.take(4), "little")


def eight_bytes(source: Source) -> int:
    """A number of eight bytes."""
    return int.from_bytes(source.take(8), "little")


def not_negative(source: Source) -> int:
    """A length with a sign.

    Raises:
        Unreadable: it is negative.
    """
    length = signed(source)
    if length < 0:
        raise Unreadable("it claims a negative length")
    return length


def float_bytes(source: Source) -> Any:
    """A number with a fraction: its value decides nothing."""
    source.skip(8)
    return OTHER


def skipped(length: Read) -> Read:
    """Bytes whose value decides nothing."""

    def read(source: Source) -> Any:
        source.skip(length(source))
        return OTHER

    return read


def integer(length: Read) -> Read:
    """A number in as many bytes as it says."""

    def read(source: Source) -> Any:
        data = source.read(length(source))
        return OTHER if data is None or len(data) > _KNOWN_INT_BYTES else int.from_bytes(data, "little", signed=True)

    return read


def utf_8(length: Read) -> Read:
    """A text; `Unreadable` when it is not UTF-8."""

    def read(source: Source) -> Any:
        data = source.read(length(source))
        if data is None:
            return OTHER
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise Unreadable("a text is not UTF-8") from error

    return read


def eight_bit(length: Read) -> Read:
    """A text of Python 2: what it is when it is not ASCII, its loader says."""

    def read(source: Source) -> Any:
        data = source.read(length(source))
        return data.decode("ascii") if data is not None and data.isascii() else OTHER

    return read


def line(source: Source) -> Any:
    """A line that decides nothing."""
    source.line()
    return OTHER


def two_lines(source: Source) -> tuple[str, str]:
    """Module and name of an import."""
    module = source.line()
    if module is None:
        raise _too_long(source.long_begins)
    name = source.line()
    if name is None:
        raise _too_long(module + source.long_begins)
    try:
        return module.decode(), name.decode()
    except UnicodeDecodeError as error:
        raise Unreadable("the name of an import is not UTF-8") from error


def _too_long(begins: bytes) -> Unreadable:
    """A name with dots is looked up part by part, however long it is; with a space in it, it is a line of text."""
    if _NAMED.fullmatch(begins.decode("utf-8", "ignore")):
        return Exhausted("the name of an import is too long to be followed")
    return Unreadable("the name of an import is none")


def quoted_line(source: Source) -> Any:
    """A text in quotes; with an escape, or not ASCII, it is not told."""
    data = source.line()
    if data is None:
        return OTHER
    if len(data) < 2 or data[0] != data[-1] or data[0] not in b"\"'":  # noqa: PLR2004 -- a quote at each end
        raise Unreadable("a text has no quotes")
    return _told(data[1:-1])


def text_line(source: Source) -> Any:
    """A text without quotes; with an escape, or not ASCII, it is not told."""
    data = source.line()
    return OTHER if data is None else _told(data)


def _told(data: bytes) -> Any:
    return data.decode("ascii") if data.isascii() and b"\\" not in data else OTHER


def int_line(source: Source) -> Any:
    """A number in any of Python's spellings, or of C's: there, a zero byte ends it."""
    data = source.line()
    if data is None:
        return OTHER
    return _BOOLS[data] if data in _BOOLS else _int(data)


def long_line(source: Source) -> Any:
    """A number in any of Python's spellings, with or without the `L` of Python 2."""
    data = source.line()
    return OTHER if data is None else _int(data.removesuffix(b"L"))


def _int(data: bytes) -> Any:
    text, zero, _ = data.partition(b"\0")
    text = text.strip(_SPACE)
    if not _INT.fullmatch(text) and not (zero and not text):
        raise Unreadable("a number is none")
    if len(text) > _KNOWN_DIGITS:
        return OTHER
    try:
        return int(text, 0)
    except ValueError:
        return OTHER  # as C's octal numbers


def float_line(source: Source) -> Any:
    """A number with a fraction: its value decides nothing."""
    data = source.line()
    if data is not None and not _FLOAT.fullmatch(data.partition(b"\0")[0].strip(_SPACE)):
        raise Unreadable("a number is none")
    return OTHER


def index_line(source: Source) -> int:
    """A place of the memo."""
    data = source.line()
    if data is None and _LONG_INDEX.fullmatch(source.long_begins):
        raise Exhausted("a place of the memo is too long to be followed")
    text = b"" if data is None else data.partition(b"\0")[0].strip(_SPACE)
    try:
        if _INDEX.fullmatch(text):
            return int(text, 10)
    except ValueError as error:
        raise Unreadable("it uses an impossible place of the memo") from error
    raise Unreadable("it uses an impossible place of the memo")


# How the argument of an instruction is read, for those that have one.
READS: Final[dict[str, Read]] = {
    "INT": int_line,
    "LONG": long_line,
    "FLOAT": float_line,
    "BININT": signed,
    "BININT1": one_byte,
    "BININT2": two_bytes,
    "LONG1": integer(one_byte),
    "LONG4": integer(not_negative),
    "BINFLOAT": float_bytes,
    "STRING": quoted_line,
    "UNICODE": text_line,
    "PERSID": line,
    "BINSTRING": eight_bit(not_negative),
    "SHORT_BINSTRING": eight_bit(one_byte),
    "SHORT_BINUNICODE": utf_8(one_byte),
    "BINUNICODE": utf_8(four_bytes),
    "BINUNICODE8": utf_8(eight_bytes),
    "SHORT_BINBYTES": skipped(one_byte),
    "BINBYTES": skipped(four_bytes),
    "BINBYTES8": skipped(eight_bytes),
    "BYTEARRAY8": skipped(eight_bytes),
    "GET": index_line,
    "BINGET": one_byte,
    "LONG_BINGET": four_bytes,
    "PUT": index_line,
    "BINPUT": one_byte,
    "LONG_BINPUT": four_bytes,
    "GLOBAL": two_lines,
    "INST": two_lines,
    "EXT1": one_byte,
    "EXT2": two_bytes,
    "EXT4": signed,
    "PROTO": one_byte,
    "FRAME": eight_bytes,
}
