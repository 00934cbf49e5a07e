"""What Python's own two unpicklers would import from some bytes: asked in a process of its own, where nothing is imported.

And streams of instructions for it, most of which both unpicklers follow: every protocol, odd spellings of numbers, odd
ends of lines, the memo in all its ways, frames that lie, several pickles in one file.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from adapters.formats.pickle_names import ALLOWED
from tests.support.pickles import EVIL, PROTO2, PROTO4, hostile, legacy_torch, text

ORACLE_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What an unpickler came to.

    Attributes:
        names: modules and names on no list that it was about to import, the first one of each attempt.
        used: the same, of those that it went on to call or change.
    """

    names: tuple[tuple[str, str], ...]
    used: tuple[tuple[str, str], ...]


_ORACLE: Final = """
import copyreg, io, json, pickle, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
MAX_STREAMS = 8
order = json.load(sys.stdin)
allowed = {tuple(pair) for pair in order["allowed"]}

class Stop(BaseException):
    pass

class Harmless(dict):
    def __new__(cls, *arguments, **named):
        return super().__new__(cls)
    def __init__(self, *arguments, **named):
        super().__init__()
    def __setstate__(self, state):
        self.kept = state

def used(self, *arguments, **named):
    raise Stop

class Meta(type):
    __call__ = append = extend = add = __setitem__ = __setstate__ = used

class Watched(metaclass=Meta):
    __new__ = used

def unpickler(base, going_on):
    class Unpickler(base):
        def find_class(self, module, name):
            if (module, name) in allowed:
                return Harmless
            self.found = (module, name)
            if going_on:
                return Watched
            raise Stop
        def persistent_load(self, identity):
            raise ValueError
    return Unpickler

def run(base, data, going_on):
    file = io.BytesIO(data)
    for _ in range(MAX_STREAMS):
        began = file.tell()
        copyreg._extension_cache.clear()
        # In a process without extensions their instructions only fail; where there are some, it is the call that counts.
        if going_on != (("os", "mkdir") in copyreg._extension_registry):
            (copyreg.add_extension if going_on else copyreg.remove_extension)("os", "mkdir", 0xF0)
        reader = unpickler(base, going_on)(file)
        reader.found = None
        try:
            reader.load()
        except Stop:
            return reader.found
        except BaseException:
            return None if going_on else reader.found
        if file.tell() in (began, len(data)):
            return None

answers = []
for hexed in order["cases"]:
    data = bytes.fromhex(hexed)
    both = pickle.Unpickler, pickle._Unpickler
    answers.append([[run(base, data, going_on) for base in both] for going_on in (False, True)])
json.dump(answers, sys.stdout)
"""


def reached(cases: Sequence[bytes]) -> list[Reached]:
    """For each file, what the unpicklers reach when they are started at its beginning, and again after each STOP."""
    order = {"allowed": sorted(ALLOWED), "cases": [case.hex() for case in cases]}
    command = [sys.executable, "-P", "-I", "-W", "ignore", "-c", _ORACLE]
    done = subprocess.run(command, input=json.dumps(order).encode(), check=True, capture_output=True, timeout=ORACLE_S)
    return [Reached(names=_pairs(names), used=_pairs(used)) for names, used in json.loads(done.stdout.decode("utf-8"))]


def _pairs(found: list[list[str] | None]) -> tuple[tuple[str, str], ...]:
    return tuple((pair[0], pair[1]) for pair in found if pair is not None)


# Streams.

_NUMBERS: Final = (
    b"0x10", b"0b1", b"0o7", b"-0x5", b"+7", b" 1", b"1 ", b"1_0", b"01", b"00", b"010", b"\t2\r", b"9" * 30, b"1\0tail",
    b"\0", b"0x" + b"f" * 40, b"0X1F", b"-0", b"1" * 4_400, b"0x" + b"0" * 9_000, b"", b"nan", b"1L", b"0x", b"1__0",
    b"\xd9\xa1", b"7\x0b",
)  # fmt: skip
_FRACTIONS: Final = (
    b"1.5", b"1e5", b"inf", b"-nan", b"Infinity", b".5", b"5.", b"1_0.0", b" 1", b"1 ", b"1\0x", b"0x1p3", b"1e", b"",
)  # fmt: skip
_STRINGS: Final = (
    b"'a'", b'"a"', b"'\\x41'", b"'\\u0041'", b"'\\777'", b"'a'b'", b"''", b"'", b"'\xff'", b"'a' ", b"'\\'", b"'\\xg'",
    b"'" + b"s" * 9_000 + b"'", b'"\'"',
)  # fmt: skip
_LINES: Final = (
    b"", b"a", b"\\u0041", b"\\ud800", b"\\U0011ffff", b"\xe9", b"x" * 9_000, b"x" * 300_000, b"\r", b"\\", b"\0",
)  # fmt: skip
_INDEXES: Final = (
    b"0", b"1", b"7", b" 1", b"1 ", b"+1", b"1_0", b"01", b"1\0x", b"1000000", b"99999", b"-1", b"0x1", b"2\r",
)  # fmt: skip
_MODULES: Final = ("os", "posix", "collections", "m\u00f6dul", "a.b", "builtins", "foo-bar")
_NAMES: Final = ("system", "mkdir", "x.y", "OrderedDict", "eval", "\u00e4")


class Streams:
    """Random streams, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        """`seed`: any number."""
        self._random = random.Random(seed)  # noqa: S311 -- for tests
        self._seeds = [case.data for case in hostile()] + [EVIL, legacy_torch(EVIL)]

    def one(self) -> bytes:
        """A file: most often something harmless in front of an import, sometimes a changed hostile file."""
        chance = self._random.random()
        if chance < 0.2:
            return self._changed(self._random.choice(self._seeds))
        made = self._stream()
        if chance < 0.4:
            made = self._any(b"N.", b"I0x1\n.", PROTO2 + b"}.", PROTO4 + b"].", b"\x95" + bytes(8) + b"K\x01.") + made
        if chance < 0.5:
            made = legacy_torch(made)
        return self._changed(made) if chance > 0.85 else made

    def _any(self, *choices: bytes) -> bytes:
        return self._random.choice(choices)

    def _stream(self) -> bytes:
        parts = [self._any(b"", b"", PROTO2, PROTO4, b"\x80\x00", b"\x80\x05", PROTO4 + self._frame())]
        parts += [self._harmless() for _ in range(self._random.choice((0, 1, 2, 3, 8)))]
        parts.append(self._import())
        parts.append(self._any(b".", b"", b"\xff", b"0.", b"\x80\x63", b"N" * 20, b"\n"))
        return b"".join(parts)

    def _frame(self) -> bytes:
        size = self._random.choice((0, 1, 5, 40, 10_000, (1 << 63) - 1, (1 << 64) - 1))
        return b"\x95" + struct.pack("<Q", size)

    def _value(self) -> bytes:
        pick = self._random.choice
        number = self._random.randrange(256)
        return self._any(
            b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f", b"(t", b"(l", b"(d", b"(\x91", b"NN\x86", b"N\x85", b"NNN\x87",
            b"I" + pick(_NUMBERS) + b"\n", b"I" + pick(_NUMBERS) + b"\n", b"L" + pick(_NUMBERS) + self._any(b"L\n", b"\n"),
            b"F" + pick(_FRACTIONS) + b"\n", b"S" + pick(_STRINGS) + b"\n", b"V" + pick(_LINES) + b"\n",
            b"K" + bytes([number]), b"M" + bytes([number, 1]), b"J" + bytes([number] * 4), b"G" + bytes([number] * 8),
            b"\x8a" + bytes([number % 20]) + bytes([number]) * (number % 20), b"\x8b" + struct.pack("<i", 3) + b"abc",
            b"U\x02" + self._any(b"ab", b"\xff\xff"), b"T" + struct.pack("<i", 3) + b"abc", b"T\xff\xff\xff\xff",
            b"C\x03abc", b"B" + struct.pack("<I", 9_000) + b"c" * 9_000, b"\x8e" + struct.pack("<Q", 2) + b"ab",
            b"\x96" + struct.pack("<Q", 3) + b"abc", b"X" + struct.pack("<I", 2) + self._any(b"ab", b"\xed\xa0"),
            b"X" + struct.pack("<I", 3) + b"\xed\xa0\x80", b"\x8d" + struct.pack("<Q", 9_000) + b"t" * 9_000, text("os"),
            b"C\x01a\x98", b"]Na", b"](NNe", b"}NNs", b"}(NNu", b"\x8f(N\x90", b"](e", b"N(e", b"N(u", b"N2\x86",
            b"ccollections\nOrderedDict\n", b"ccollections\nOrderedDict\n)R", b"ccollections\nOrderedDict\n)R}b",
            b"(icollections\nOrderedDict\n", b"(ccollections\nOrderedDict\no", b"ccollections\nOrderedDict\n)\x81",
            b"ccollections\nOrderedDict\n)}\x92",
        )  # fmt: skip

    def _harmless(self) -> bytes:
        pick = self._random.choice
        put = self._any(b"p" + pick(_INDEXES) + b"\n", b"q\x05", b"\x94", b"r\xff\xff\x0f\x00", b"r\x40\x42\x0f\x00")
        value = self._value()
        return self._any(
            value + b"0", value + b"0", value, b"(" + value + b"1", b"(0", b"(", value + b"2" + b"00", value + put + b"0",
            value + b"p" + (index := pick(_INDEXES)) + b"\n0g" + index + b"\n0", value + b"q\x030h\x030",
            value + b"r\x00\x01\x00\x000j\x00\x01\x00\x000", self._frame(), b"\x80" + bytes([self._random.randrange(7)]),
            b"P" + pick(_LINES) + b"\n0", value + b"Q0",
        )  # fmt: skip

    def _import(self) -> bytes:
        module, name = self._random.choice(_MODULES), self._random.choice(_NAMES)
        lines = module.encode() + b"\n" + name.encode() + self._any(b"\n", b"\n", b"\n", b"")
        arguments = self._any(b"(S'a'\nt", text("a") + b"\x85", b")", b"(t", b"(I0x1\nt")
        escaped = b"V" + "".join(f"\\u{ord(one):04x}" for one in module).encode() + b"\n"
        quoted = b"S'" + "".join(f"\\x{one:02x}" for one in name.encode()).encode() + b"'\n"
        pair = self._any(text(module) + text(name), escaped + text(name), text(module) + quoted, escaped + quoted)
        kept = text(module) + b"p1\n0" + text(name) + b"\x940g1\n" + text(name)
        return self._any(
            b"c" + lines + arguments + b"R", b"c" + lines + arguments + b"\x81", b"c" + lines + arguments + b"}\x92",
            b"(" + arguments + b"i" + lines, b"(c" + lines + b"No", b"c" + lines + b"}b", b"c" + lines + b"Na",
            b"c" + lines + b"NNs", b"c" + lines + b"(Ne", b"c" + lines, pair + b"\x93" + arguments + b"R",
            pair + b"\x93", kept + b"\x93)R", b"\x82\xf0" + arguments + b"R", b"\x83\xf0\x00" + arguments + b"R",
            b"\x84\xf0\x00\x00\x00)R", b"i" + lines,
        )  # fmt: skip

    def _changed(self, seed: bytes) -> bytes:
        data = bytearray(seed)
        for _ in range(self._random.randrange(1, 4)):
            at = self._random.randrange(len(data) + 1)
            kind = self._random.randrange(4)
            if kind == 0 and at < len(data):
                data[at] = self._random.randrange(256)
            elif kind == 1:
                data[at:at] = self._harmless()
            elif kind == 2:
                del data[at : at + self._random.randrange(1, 9)]
            else:
                data[0:0] = self._harmless()
        return bytes(data)
