"""What a pickle could do, read instruction by instruction and never loaded (spec A4).

The verdict comes from a list of what is harmless, not from a list of what is dangerous: scanners of the second kind
are passed by again and again. A file is read as its loader would read it: one pickle or several, torch's old format
with raw storages behind its five pickles, torch's zip container, joblib's arrays between the instructions, and an
object array of NumPy.
"""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
from collections.abc import Callable
from typing import BinaryIO, Final, Literal

from msgspec.structs import replace

from adapters.formats import pickle_numpy, pickle_packed, pickle_tar
from adapters.formats.pickle_findings import Budget, Findings
from adapters.formats.pickle_machine import Machine
from adapters.formats.pickle_source import CUT_SHORT, Exhausted, Source, Unreadable
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
_MAIN_ENTRY: Final = "data.pkl"
# The members of torch's format before its old one.
_TAR_ENTRIES: Final = frozenset({"storages", "tensors", "pickle"})
_TORCH_TAR_ENTRIES: Final = frozenset({"storages", "pickle"})
# Nothing but joblib's pickles is found in a model's folder packed with it.
_JOBLIB_ONLY: Final = "lz4"
_HEAD_BYTES: Final = pickle_tar.BLOCK_BYTES
_Reader = Callable[[str, BinaryIO, int], tuple[PickleFacts, ...]]
_Verdict = Literal["tensors", "plain", "code", "unreadable"]
_PROTO: Final = b"\x80"
_NEWEST: Final = b"\x05"
_IDENTIFIERS: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


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


def hides_pickle(file: BinaryIO, size_bytes: int, *, text: bool) -> bool:
    """Would an unpickler, started at the first byte of a file of any name, import something that is on no list?

    Also when that cannot be told because a limit is reached first. Nearly every file that is no pickle ends the reading
    within its first bytes.

    Args:
        file: seekable, at its beginning; it is left anywhere.
        size_bytes: how long it is.
        text: is it text and not called a pickle? Two lines of one word are an import then only if it is called: `cat`
            above `dog` imports `at`, which nobody has.
    """
    head = file.read(2)
    file.seek(0)
    try:
        return _read("", "", file, size_bytes, Budget()).counts(head, loose=not text)
    except Exception:  # noqa: BLE001 -- whatever it sets off, the reading proper will name it
        return True


def may_hold_pickles(head: bytes) -> bool:
    """Does a file that begins with `head`, `pickle_tar.BLOCK_BYTES` of it or all, hold members for some reader?

    Whatever else it is: the first name in a tar may spell the mark of any other format.
    """
    return bool(_readers(head))


def _facts_of_file(path: str, file: BinaryIO, size_bytes: int) -> tuple[PickleFacts, ...]:
    """What every reader finds that would take the file, because its loader may be any of them."""
    head = file.read(_HEAD_BYTES)
    readers = _readers(head)
    found: list[PickleFacts] = []
    for reader in readers:
        file.seek(0)
        try:
            found += reader(path, file, size_bytes)
        except Unreadable as problem:
            found.append(_unreadable(path, "", str(problem)))
        except Exception as error:  # noqa: BLE001 -- one reader's end hides nothing that another one finds
            found.append(_unreadable(path, "", f"reading it ended in {type(error).__name__}"))
    if not head.startswith(ZIP_MAGICS):  # taken for instructions, a zip begins with one that every unpickler refuses
        file.seek(0)
        reading = _read(path, "", file, size_bytes, Budget())
        if not readers or reading.counts(head, loose=True):
            found.append(reading.facts)
    return _most_telling(found)


def _readers(head: bytes) -> tuple[_Reader, ...]:
    """Of what holds pickles and is none itself."""
    readers: list[_Reader] = []
    if head.startswith(ZIP_MAGICS):
        readers.append(_facts_of_container)
    if head.startswith(pickle_numpy.MAGIC):
        readers.append(_facts_of_array)
    if pickle_tar.is_tar(head):
        readers.append(_facts_of_tar)
    if pickle_packed.packed_by(head) is not None:
        readers.append(_facts_of_packed)
    return tuple(readers)


def _facts_of_array(path: str, file: BinaryIO, size_bytes: int) -> tuple[PickleFacts, ...]:
    facts = _array(path, "", file, size_bytes, Budget())
    return () if facts is None else (facts,)


class _Reading:
    """What came of one plain pickle: its facts, and how far it was read."""

    def __init__(self, facts: PickleFacts, findings: Findings, problem: Unreadable | None) -> None:
        self.facts = facts
        self.findings = findings
        self.problem = problem
        self.whole = problem is None
        self.exhausted = isinstance(problem, Exhausted)

    def counts(self, head: bytes, *, loose: bool) -> bool:
        """Is it beyond chance a pickle that matters? Asked where no name says so.

        A storage's bytes are anything, and a text whose first word begins with `c` begins with an import. Neither goes on
        to call what it imported, and neither has the mark of a protocol in front of an import. `loose`: is an import
        enough, because chance does not spell one?
        """
        findings = self.findings
        if self.exhausted or (loose and findings.imported):
            return True
        if findings.called and (findings.imported or findings.numbered):
            return True
        if head[:1] == _PROTO and head[1:2] <= _NEWEST and self.facts.imports:
            return True
        named = bool(self.facts.imports) and all(_IDENTIFIERS.fullmatch(name) for name in self.facts.imports)
        return (named and (findings.called or self.whole)) or (self.facts.verdict == "code" and self.whole)


def _read(path: str, member: str, file: BinaryIO, size_bytes: int, budget: Budget) -> _Reading:
    findings = Findings()
    problem: Unreadable | None = None
    try:
        _read_streams(Source(file, size_bytes, budget.reads), findings, budget)
    except Unreadable as error:
        problem = error
    except (tarfile.TarError, OSError, ValueError, MemoryError) as error:
        problem = Exhausted(f"reading it ended in {type(error).__name__}")
    if findings.parted:
        problem = Exhausted("a frame ends where no instruction does, and unpicklers do not agree about what follows")
    if findings.code is not None:
        facts = _facts(path, member, "code", findings.code, findings)
    elif problem is not None:
        facts = _facts(path, member, "unreadable", str(problem), findings)
    elif findings.tensors:
        facts = _facts(path, member, "tensors", "it only rebuilds tensors and plain containers", findings)
    else:
        facts = _facts(path, member, "plain", "it holds plain values only", findings)
    return _Reading(facts, findings, problem)


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
            raise Exhausted(f"it has more than {MAX_STREAMS} pickles")
        if legacy and streams == _LEGACY_STREAMS:
            return  # raw storages follow, which no loader takes for instructions
    if legacy:
        raise Unreadable("it begins like torch's old format and ends before its storages")


def _facts_of_container(path: str, file: BinaryIO, size_bytes: int) -> tuple[PickleFacts, ...]:
    container = Container(file, size_bytes)
    problems = [*container.problems]
    found: list[PickleFacts] = []
    budget, other_budget = Budget(), Budget()
    for entry in sorted(container.entries, key=_rank):
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
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if head.startswith(pickle_numpy.MAGIC):
        return _array(path, entry.name, file, size, budget)
    reading = _read(path, entry.name, file, size, budget)
    return reading.facts if reading.counts(head, loose=False) else None


def _rank(entry: Entry) -> int:
    """What a loader opens comes first, so that nothing can use up the bounds before it."""
    name = entry.name.lower()
    if name == _MAIN_ENTRY or name.endswith(f"/{_MAIN_ENTRY}"):
        return 0
    return 1 if _is_named_like_a_pickle(name) else 2


def _is_named_like_a_pickle(name: str) -> bool:
    return name.lower().endswith(_PICKLE_SUFFIXES)


def _array(path: str, member: str, file: BinaryIO, size_bytes: int, budget: Budget) -> PickleFacts | None:
    """The facts of a NumPy file of objects, `file` at its beginning; `None` for an array of plain numbers."""
    header = pickle_numpy.read_header(file)
    if header.plain:
        return None
    facts = _read(path, member, file, size_bytes - header.end, budget).facts
    if not header.listed and facts.verdict != "code":
        reason = "the items of the array are of a kind that is on no list, and may be objects"
        return replace(facts, verdict="code", reason=reason)
    return facts


def _facts_of_tar(path: str, file: BinaryIO, _size_bytes: int) -> tuple[PickleFacts, ...]:
    """Each member of a tar that is a pickle.

    In torch's, raw bytes stand between the pickles, and the pickles say how many: whoever follows them reads what the
    file wants to be read. Such a tar is never judged harmless.
    """
    found: list[PickleFacts] = []
    budget = Budget()
    of_torch = False
    try:
        for name, content, size in pickle_tar.members(file):
            entry = posixpath.normpath(name).lstrip("/")
            of_torch |= entry in _TORCH_TAR_ENTRIES
            if content is None:
                continue
            head = content.read(_HEAD_BYTES)
            content.seek(0)
            reading = _read(path, name, content, size, budget)
            if _is_named_like_a_pickle(name) or entry in _TAR_ENTRIES or reading.counts(head, loose=False):
                found.append(reading.facts)
    except Unreadable as problem:
        found.append(_unreadable(path, "", str(problem)))
    if of_torch and all(facts.verdict not in {"code", "unreadable"} for facts in found):
        found.append(_unreadable(path, "", "it is a tar of torch, whose pickles say themselves where they stand"))
    return _most_telling(found)


def _facts_of_packed(path: str, file: BinaryIO, _size_bytes: int) -> tuple[PickleFacts, ...]:
    """Of a packed file: nothing when its beginning is no pickle and its name does not say so."""
    packed = pickle_packed.packed_by(file.read(_HEAD_BYTES)) or ""
    named = _is_named_like_a_pickle(path)
    if not pickle_packed.can_unpack(packed):
        if not named and packed != _JOBLIB_ONLY:
            return ()
        raise Unreadable(f"it is compressed with {packed}, which is not read")
    for limit_bytes in (pickle_packed.HEAD_BYTES, pickle_packed.MAX_UNPACKED_BYTES):
        file.seek(0)
        data, more = pickle_packed.unpack(file, packed, limit_bytes)
        if not data:
            break
        reading = _read(path, "", io.BytesIO(data), len(data), Budget())
        cut = more and str(reading.problem) in CUT_SHORT
        if not cut and not reading.counts(data, loose=True) and not (data[:1] == _PROTO and data[1:2] <= _NEWEST):
            break
        if reading.facts.verdict == "code":
            return (reading.facts,)
        if not more or limit_bytes == pickle_packed.MAX_UNPACKED_BYTES:
            return (_unreadable(path, "", f"it is a pickle compressed with {packed}, which is not judged harmless"),)
    if named:
        raise Unreadable(f"it is compressed with {packed}, and what is in it is no pickle")
    return ()


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
