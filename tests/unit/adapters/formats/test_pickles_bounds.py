"""A pickle that is made to exhaust its reader ends soon, in little memory, and never in an exception."""

from __future__ import annotations

import contextlib
import io
import pickle  # noqa: TID251 -- the tests make pickles, and ask the real unpickler which names it would import
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.formats import pickle_findings, pickle_machine, pickle_opcodes, pickle_source, pickle_zip, pickles
from adapters.formats.pickle_names import ALLOWED
from bus.messages.artifacts import PickleFacts
from tests.support.pickles import EVIL, PROTO2, PROTO4, hostile, joblib_wrapper, legacy_torch, named, torch_zip, zipped

MANY_S: Final = 30.0
SHORT: Final = "it ends inside an instruction, or claims more bytes than there are"


def facts(data: bytes) -> tuple[PickleFacts, ...]:
    return pickles.pickle_facts("weights.bin", io.BytesIO(data), len(data))


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(b"\x8e" + struct.pack("<Q", 1 << 60), id="bytes8"),
        pytest.param(b"\x8d" + struct.pack("<Q", 1 << 62), id="text8"),
        pytest.param(b"\x96" + struct.pack("<Q", 1 << 40), id="bytearray8"),
        pytest.param(b"B" + struct.pack("<I", (1 << 32) - 1), id="bytes4"),
        pytest.param(b"X" + struct.pack("<I", (1 << 32) - 1), id="text4"),
        pytest.param(b"T" + struct.pack("<i", (1 << 31) - 1), id="string4"),
        pytest.param(b"\x8b" + struct.pack("<i", (1 << 31) - 1), id="long4"),
        pytest.param(b"\x8a\xff", id="long1"),
    ],
)
def test_a_length_that_is_claimed_is_not_allocated(claim: bytes) -> None:
    data = PROTO4 + claim + b"few bytes"

    assert peak_bytes(lambda: facts(data)) < 1024 * 1024
    (found,) = facts(data)
    assert (found.verdict, found.reason) == ("unreadable", SHORT)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"T\xff\xff\xff\xff.", "it claims a negative length", id="negative-length"),
        pytest.param(b"\x8b\xff\xff\xff\xff.", "it claims a negative length", id="negative-number"),
        pytest.param(b"Iten\n.", "a number is none", id="number"),
        pytest.param(b"F0x1p3\n.", "a number is none", id="fraction"),
        pytest.param(b"X\x01\x00\x00\x00\xff.", "a text is not UTF-8", id="text-not-UTF-8"),
        pytest.param(b"Vx", "it ends before its STOP", id="no-line"),
        pytest.param(b"c" + b"o" * 9_000 + b"\nx\n.", "the name of an import is too long to be followed", id="long-name"),
        pytest.param(b"K\x01K\x02\x93.", "the name of an import is no text", id="numbers-as-name"),
        pytest.param(b"Np-1\n.", "it uses an impossible place of the memo", id="negative-memo"),
        pytest.param(b"h\x00.", "it asks the memo for what was never put there", id="empty-memo"),
        pytest.param(b"(" * 20_000 + b".", "it has more than 10000 marks at once", id="marks"),
        pytest.param(b"t.", "it looks for a mark that is not there", id="no-mark"),
        pytest.param(b"R.", "it takes from an empty stack", id="empty-stack"),
        pytest.param(b"2.", "it looks at an empty stack", id="copy-nothing"),
        pytest.param(b".", "it looks at an empty stack", id="stop-at-once"),
        pytest.param(b"}(Nu.", "it has a key without a value", id="odd-items"),
        pytest.param(b"(o.", "it calls nothing", id="call-nothing"),
        pytest.param(b"\x80\x06N.", "it has protocol 6, the newest is 5", id="protocol"),
        pytest.param(b"\xff", "a byte of it is no instruction", id="unknown"),
        pytest.param(b"cos\nsys\xff\n.", "the name of an import is not UTF-8", id="name-not-UTF-8"),
        pytest.param(b"S'a\n.", "a text has no quotes", id="quotes"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_unreadable(body: bytes, reason: str) -> None:
    (found,) = facts(PROTO4 + body)

    assert (found.verdict, found.reason) == ("unreadable", reason)


def test_an_empty_file_is_unreadable() -> None:
    (found,) = facts(b"")

    assert (found.verdict, found.reason) == ("unreadable", "it is empty")


def test_the_number_of_instructions_is_bounded_for_all_pickles_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_findings, "MAX_INSTRUCTIONS", 1_000)
    one, many = facts(b"N0" * 600 + b"N."), facts(b"N." * 600)
    several = facts(zipped({f"{number}.pkl": b"N0" * 300 + b"N." for number in range(3)}))

    assert [found.verdict for found in (*one, *many)] == ["unreadable", "unreadable"]
    assert one[0].reason == "it has more than 1000 instructions"
    assert [found.verdict for found in several] == ["unreadable", "unreadable", "plain"]


def test_the_bytes_that_are_read_are_bounded_and_what_is_passed_over_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pickle_findings, "MAX_READ_BYTES", 100_000)
    lines, tensors = b"V" + b"x" * 5_000 + b"\n0", b"\x8e" + struct.pack("<Q", 1_000_000) + bytes(1_000_000) + b"0"

    assert facts(lines * 10 + b"N.")[0].verdict == "plain"
    assert facts(lines * 30 + b"N.")[0].reason == "more than 100000 bytes of it are instructions and short values"
    assert facts(tensors * 3 + b"N.")[0].verdict == "plain"


def test_strings_are_kept_only_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no longer fits cannot be told, and what cannot be told is code; listed words always fit."""
    monkeypatch.setattr(pickle_findings, "_MAX_KEPT_CHARS", 10)
    filled = PROTO4 + b"\x8c\x0aabcdefghij0"

    assert facts(filled + named("collections", "OrderedDict") + b".")[0].verdict == "plain"
    assert (
        facts(filled + named("os", "system") + b".")[0].reason == "it imports a name that cannot be told before it runs"
    )


def test_imports_are_bounded() -> None:
    (found,) = facts(b"".join(b"cm%d\nx\n0" % number for number in range(5_000)) + b"N.")

    assert len(found.imports) == pickle_findings.MAX_IMPORTS


def test_foreign_names_are_cleaned() -> None:
    (found,) = facts(b"c\x1b[2Jos\x07\nsys\xe2\x80\xaetem\n.")
    (member, *_others) = facts(zipped({"\x1b[2Ja.pkl": EVIL}))

    for text in (*found.imports, found.reason, member.member):
        assert not set(text) & {"\x1b", "\x07", "\u202e", "\n"}


def test_a_large_tensor_inside_a_pickle_is_passed_over(tmp_path: Path) -> None:
    """8 GiB of a hole in a file: reading it would take seconds, and holding it all memory there is."""
    size = 8 * 1024**3
    path = tmp_path / "large.pkl"
    with path.open("wb") as file:
        file.write(PROTO4 + b"\x8e" + struct.pack("<Q", size))
        file.seek(size, io.SEEK_CUR)
        file.write(b"0" + EVIL)
    total = path.stat().st_size

    with path.open("rb") as file:
        found: list[PickleFacts] = []
        assert peak_bytes(lambda: found.extend(pickles.pickle_facts("large.pkl", file, total))) < 1024 * 1024

    assert [(one.verdict, one.reason) for one in found] == [("code", "it imports os.mkdir")]


def test_a_file_that_becomes_shorter_is_unreadable() -> None:
    (found,) = pickles.pickle_facts("w.pkl", io.BytesIO(PROTO4 + b"\x8e" + struct.pack("<Q", 100_000)), 200_000)

    assert found.verdict == "unreadable"


class _Failing(io.BytesIO):
    def read(self, _size: int | None = -1, /) -> NoReturn:
        raise OSError(5, "Input/output error")


def test_a_file_that_cannot_be_read_is_unreadable() -> None:
    (found,) = pickles.pickle_facts("w.pkl", _Failing(), 10)

    assert (found.verdict, found.reason) == ("unreadable", "reading it ended in OSError")


@pytest.mark.parametrize("alignment", [True, False])
def test_a_joblib_array_may_not_claim_more_than_there_is(alignment: bool) -> None:
    (found,) = facts(joblib_wrapper(size=60_000, alignment=alignment) + b"\x01\x00abc")

    assert found.verdict == "unreadable"


def test_padding_that_is_an_instruction_is_refused() -> None:
    """`pickle.load` would go on in the padding, where joblib passes over it."""
    padding = b"c" + b"os\nmkdir\n(S'marker'\ntR.".ljust(ord("c"))
    (found,) = facts(joblib_wrapper(size=3, alignment=True) + padding + b"abc.")

    assert (found.verdict, found.reason) == ("unreadable", "a joblib array is aligned otherwise than it says")


# Containers.


def packed(content: bytes, name: str = "a/data.pkl") -> bytes:
    return zipped({name: content}, method=zipfile.ZIP_DEFLATED)


def _collect(found: list[PickleFacts], data: bytes) -> None:
    found.extend(facts(data))


def test_an_entry_that_unpacks_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_zip, "MAX_MEMBER_BYTES", 1_000_000)
    content = b"N0" * 10_000_000
    honest, lying = packed(content), packed(content)
    lying = lying.replace(struct.pack("<I", len(content)), struct.pack("<I", 500))

    for data in (honest, lying):
        found: list[PickleFacts] = []
        assert peak_bytes(partial(_collect, found, data)) < 8_000_000
        assert [one.verdict for one in found] == ["unreadable"]


def test_all_packed_entries_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_zip, "MAX_SUM_BYTES", 3_000)
    found = facts(zipped({f"{number}.pkl": b"N0" * 500 + b"N." for number in range(4)}, method=zipfile.ZIP_DEFLATED))

    assert [one.verdict for one in found] == ["unreadable", "unreadable", "plain", "plain"]
    assert found[0].reason == "the entries are more than 3000 bytes to look through"


def test_damaged_packed_bytes_are_unreadable() -> None:
    data = bytearray(packed(PROTO2 + b"]" + b"N." * 50))
    at = data.index(b"a/data.pkl") + len(b"a/data.pkl")
    data[at : at + 4] = b"\xff\xff\xff\xff"

    (found,) = facts(bytes(data))

    assert (found.verdict, found.reason) == ("unreadable", "its packed bytes are damaged")


def test_the_directory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_zip, "MAX_ENTRIES", 3)
    (found,) = facts(zipped({f"{number}.pkl": EVIL for number in range(4)}))

    assert found.verdict == "unreadable"
    assert found.reason.startswith("its directory is larger than 3 entries")


def test_the_facts_of_a_file_are_bounded_and_code_comes_first() -> None:
    entries = {f"{number}.pkl": b"N." for number in range(pickles.MAX_FACTS + 10)}
    found = facts(zipped({**entries, "last.pkl": EVIL}))

    assert len(found) == pickles.MAX_FACTS
    assert (found[0].member, found[0].verdict) == ("last.pkl", "code")


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"])
def test_what_begins_like_a_container_and_is_none_is_unreadable(head: bytes) -> None:
    for rest in (
        b"",
        bytes(100),
        b"PK\x05\x06" + b"\xff" * 18,
        b"PK\x06\x07" + bytes(16) + b"PK\x05\x06" + bytes(18),
    ):
        assert {one.verdict for one in facts(head + rest)} == {"unreadable"}


def test_entries_that_look_like_endless_pickles_do_not_take_all_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_findings, "MAX_INSTRUCTIONS", 10_000)
    entries = {f"data/{number}": b"N0" * 4_000 for number in range(50)}

    found = facts(zipped({**entries, "a/data.pkl": PROTO2 + b"}."}))

    assert {(one.member, one.verdict) for one in found} == {
        ("", "unreadable"),
        ("a/data.pkl", "plain"),
        ("data/1", "unreadable"),
    }
    assert any(one.reason.endswith("there is too much before it that looks like a pickle") for one in found)


# Whatever the bytes are.


def _seeds() -> list[bytes]:
    tensors, old = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.ones(2)}, tensors)
    torch.save({"a": torch.ones(2)}, old, _use_new_zipfile_serialization=False)
    value = {"a": [1, 2.5, "x", b"y", {3}], "n": np.arange(2.0), "s": np.float32(1)}
    made = [pickle.dumps(value, protocol) for protocol in range(6)]
    return [
        *made,
        tensors.getvalue(),
        old.getvalue(),
        *(case.data for case in hostile()),
        legacy_torch(b"N."),
        torch_zip(b"N."),
    ]


SEEDS: Final = _seeds()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.integers(0, 3))
        if kind == 0 and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif kind == 1:
            data[at:at] = draw(st.binary(max_size=8))
        elif kind == 2:
            del data[at : at + draw(st.integers(1, 16))]
        else:
            other = draw(st.sampled_from(SEEDS))
            begin = draw(st.integers(0, len(other)))
            data[at:at] = other[begin : begin + draw(st.integers(1, 40))]
    return bytes(data)


class _Watching(pickle.Unpickler):
    """The real unpickler with harmless stand-ins: it says which names a file makes it import."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.asked: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.asked.add((module, name))
        return _StandIn

    def persistent_load(self, identity: Any) -> object:
        return object()


class _StandIn(dict[Any, Any]):
    def __new__(cls, *_arguments: Any, **_named: Any) -> Self:
        return super().__new__(cls)

    def __init__(self, *_arguments: Any, **_named: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        self.kept = state


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(mutated(), st.binary(max_size=200), st.binary(max_size=60).map(lambda rest: PROTO4 + rest)))
def test_whatever_the_bytes_are_the_answer_is_a_verdict_and_a_sound_one(data: bytes) -> None:
    """The real unpickler imports nothing that is not on the list from a file that passes."""
    began_s = time.monotonic()
    found = facts(data)

    assert time.monotonic() - began_s < MANY_S
    assert {one.verdict for one in found} <= {"tensors", "plain", "code", "unreadable"}
    if found and not data.startswith((b"PK", b"\x93NUMPY")) and found[0].verdict in {"tensors", "plain"}:
        watching = _Watching(data)
        with contextlib.suppress(Exception):  # the stand-ins are not what the file expects; what it asked for counts
            watching.load()
        assert watching.asked <= set(ALLOWED)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(min_size=1, max_size=400), sizes=st.lists(st.integers(0, 50), max_size=30))
def test_the_source_gives_the_bytes_that_are_there(data: bytes, sizes: list[int]) -> None:
    source, plain = pickle_source.Source(io.BytesIO(data), len(data)), io.BytesIO(data)
    for size in sizes:
        if size > source.left:
            with pytest.raises(pickle_source.Unreadable):
                source.read(size)
            break
        assert source.read(size) == plain.read(size)
        assert source.left == len(data) - plain.tell()


def test_every_instruction_of_a_pickle_is_followed_and_those_with_an_argument_read_it() -> None:
    import pickletools  # noqa: PLC0415 -- only this test looks at its table

    assert {opcode.name for opcode in pickletools.opcodes} == set(pickle_machine.Machine._steps)
    assert {opcode.name for opcode in pickletools.opcodes if opcode.arg} == set(pickle_opcodes.READS)
