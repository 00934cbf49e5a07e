"""What a pickle could do, read instruction by instruction and never loaded (spec A4).

The verdict comes from a list of what is harmless, not from a list of what is dangerous: scanners of the second kind
are passed by again and again. A file is read as its loader would read it: one pickle or several, torch's old format
with raw storages behind its five pickles, torch's zip container, joblib's arrays between the instructions, and an
object array of NumPy.
"""

from __future__ import annotations

import io
from typing import BinaryIO, Final, Literal

from adapters.formats.pickle_findings import Budget, Findings
from adapters.formats.pickle_machine import Machine
from adapters.formats.pickle_source import Source, Unreadable
from adapters.formats.pickle_zip import ZIP_MAGICS, Container, Entry
from bus.messages.artifacts import PickleFacts
from bus.text import clean_line

MAX_FACTS: Final = 64
MAX_STREAMS: Final = 100_000
_MAX_TEXT_CHARS: Final = 200
# torch's format before its zip container: this number, its protocol, facts of the system, the object, the storages' keys.
_LEGACY_TORCH: Final = 0x1950A86A20F9469CFC6C
_LEGACY_STREAMS: Final = 5
_PICKLE_SUFFIXES: Final = (".pkl", ".pickle", ".joblib", ".dill")
_COMPRESSED: Final = {
    b"x\x01": "zlib",
    b"x\x5e": "zlib",
    b"x\x9c": "zlib",
    b"x\xda": "zlib",
    b"ZF": "zlib",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"]\x00\x00": "lzma",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_HEAD_BYTES: Final = 8
_Verdict = Literal["tensors", "plain", "code", "unreadable"]
_PROTO: Final = b"\x80"
_NEWEST: Final = b"\x05"
_NUMPY: Final = b"\x93NUMPY"
_MAX_NUMPY_HEADER_BYTES: Final = 64 * 1024


def pickle_facts(path: str, file: BinaryIO, size_bytes: int) -> tuple[PickleFacts, ...]:
    """Every pickle in a file that is said to be one, or a container of some: at most `MAX_FACTS`, code first.

    Args:
        path: the member's name in the set; it is only repeated.
        file: seekable, at its beginning; it is left anywhere.
        size_bytes: how long it is.

    Returns:
        Nothing for a zip container without a pickle and for a NumPy array of plain numbers. It never raises: what
        cannot be read, for whatever reason, has the verdict `unreadable`.
    """
    try:
        return _facts_of_file(path, file, size_bytes)
    except Unreadable as problem:
        return (_unreadable(path, "", str(problem)),)
    except Exception as error:  # noqa: BLE001 -- whatever a hostile file sets off is a finding about this file
        return (_unreadable(path, "", f"reading it ended in {type(error).__name__}"),)


def _facts_of_file(path: str, file: BinaryIO, size_bytes: int) -> tuple[PickleFacts, ...]:
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if head.startswith(ZIP_MAGICS):
        return _facts_of_container(path, file, size_bytes)
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise Unreadable(f"it is compressed with {name}; what is compressed is not read")
    if head.startswith(_NUMPY):
        begin = _object_array(file)
        return () if begin is None else (_read(path, "", file, size_bytes - begin, Budget()).facts,)
    return (_read(path, "", file, size_bytes, Budget()).facts,)


class _Reading:
    """What came of one plain pickle: its facts, whether it calls anything, and whether it was read to its end."""

    def __init__(self, facts: PickleFacts, *, called: bool, whole: bool) -> None:
        self.facts = facts
        self.called = called
        self.whole = whole

    def is_pickle(self, head: bytes) -> bool:
        """Is it beyond chance a pickle that matters? Asked of entries whose name does not say so.

        A storage's bytes are anything, and a text whose first word begins with `c` begins with an import. Neither goes on
        to call what it imported, and neither has the mark of a protocol in front of an import.
        """
        if head[:1] == _PROTO and head[1:2] <= _NEWEST and self.facts.imports:
            return True
        named = bool(self.facts.imports) and all(_looks_like_a_name(name) for name in self.facts.imports)
        return (named and (self.called or self.whole)) or (self.facts.verdict == "code" and self.whole)


def _looks_like_a_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _read(path: str, member: str, file: BinaryIO, size_bytes: int, budget: Budget) -> _Reading:
    findings = Findings()
    problem: str | None = None
    try:
        _read_streams(Source(file, size_bytes, budget.reads), findings, budget)
    except Unreadable as error:
        problem = str(error)
    except (ValueError, OverflowError, IndexError) as error:
        # What `genops` says of an argument quotes the file; the kind of error is enough.
        problem = f"an instruction cannot be read ({type(error).__name__})"
    if findings.code is not None:
        facts = _facts(path, member, "code", findings.code, findings)
    elif problem is not None:
        facts = _facts(path, member, "unreadable", problem, findings)
    elif findings.tensors:
        facts = _facts(path, member, "tensors", "it only rebuilds tensors and plain containers", findings)
    else:
        facts = _facts(path, member, "plain", "it holds plain values only", findings)
    return _Reading(facts, called=findings.called, whole=problem is None)


def _read_streams(source: Source, findings: Findings, budget: Budget) -> None:
    """All pickles, one after the other, to the end of the file: a loader may ask for the next one."""
    if not source.left:
        raise Unreadable("it is empty")
    streams, legacy = 0, False
    while source.left:
        value = Machine(source, findings, budget).run()
        streams += 1
        if streams == 1:
            legacy = isinstance(value, int) and value == _LEGACY_TORCH
        if streams > MAX_STREAMS:
            raise Unreadable(f"it has more than {MAX_STREAMS} pickles")
        if legacy and streams == _LEGACY_STREAMS:
            return  # raw storages follow, which no loader takes for instructions
    if legacy:
        raise Unreadable("it begins like torch's old format and ends before its storages")


def _facts_of_container(path: str, file: BinaryIO, size_bytes: int) -> tuple[PickleFacts, ...]:
    container = Container(file, size_bytes)
    problems = [*container.problems]
    found: list[PickleFacts] = []
    budget, other_budget = Budget(), Budget()
    for entry in container.entries:
        named = _is_named_like_a_pickle(entry.name)
        try:
            facts = (
                _named_entry(path, container, entry, budget)
                if named
                else _other_entry(path, container, entry, other_budget)
            )
        except Unreadable as problem:
            if named:
                found.append(_unreadable(path, entry.name, str(problem)))
            else:
                problems.append(f"{entry.name}: {problem}")
            continue
        if facts is not None:
            found.append(facts)
    if problems:
        found.append(_unreadable(path, "", problems[0]))
    return _most_telling(found)


def _named_entry(path: str, container: Container, entry: Entry, budget: Budget) -> PickleFacts:
    data = container.read(entry)
    facts = _read(path, entry.name, io.BytesIO(data.content), len(data.content), budget).facts
    if facts.verdict != "code" and data.problem is not None:
        return _unreadable(path, entry.name, data.problem)
    return facts


def _other_entry(path: str, container: Container, entry: Entry, budget: Budget) -> PickleFacts | None:
    """The facts of an entry whose name says nothing, when it is a pickle with code all the same; `None` otherwise."""
    if budget.spent:
        raise Unreadable("there is too much before it that looks like a pickle")
    file, size = container.open(entry)
    begin = 0
    head = file.read(_HEAD_BYTES)
    if head.startswith(_NUMPY):
        file.seek(0)
        found = _object_array(file)
        if found is None:
            return None
        begin = found
    file.seek(begin)
    reading = _read(path, entry.name, file, size - begin, budget)
    return reading.facts if begin or reading.is_pickle(head) else None


def _is_named_like_a_pickle(name: str) -> bool:
    return name.lower().endswith(_PICKLE_SUFFIXES)


def _object_array(file: BinaryIO) -> int | None:
    """Where the pickle of a NumPy file of objects begins, `file` set to it; `None` for an array of plain numbers."""
    head = file.read(_HEAD_BYTES)
    length_bytes = 2 if head[6:7] == b"\x01" else 4
    length = int.from_bytes(file.read(length_bytes), "little")
    if length > _MAX_NUMPY_HEADER_BYTES:
        raise Unreadable(f"the header of the array claims {length} bytes, more than {_MAX_NUMPY_HEADER_BYTES}")
    header = file.read(length)
    if len(header) < length:
        raise Unreadable("the file ends inside the array's header")
    return _HEAD_BYTES + length_bytes + length if b"O" in header.replace(b"'fortran_order'", b"") else None


def _most_telling(found: list[PickleFacts]) -> tuple[PickleFacts, ...]:
    order = ("code", "unreadable", "tensors", "plain")
    return tuple(sorted(found, key=lambda facts: order.index(facts.verdict))[:MAX_FACTS])


def _facts(path: str, member: str, verdict: _Verdict, reason: str, findings: Findings) -> PickleFacts:
    return PickleFacts(
        path=path,
        member=clean_line(member, _MAX_TEXT_CHARS),
        verdict=verdict,
        reason=clean_line(reason, _MAX_TEXT_CHARS),
        imports=tuple(clean_line(name, _MAX_TEXT_CHARS) for name in findings.imports),
    )


def _unreadable(path: str, member: str, reason: str) -> PickleFacts:
    return _facts(path, member, "unreadable", reason, Findings())
