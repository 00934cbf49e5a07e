"""Pickles behind what a stricter reader stops at, and inside what is no pickle itself: none of them passes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle  # noqa: TID251 -- the tests make pickles
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

from adapters.formats import pickle_findings
from adapters.formats.evidence import EvidenceCollector
from bus.messages.artifacts import PickleFacts
from tests.support.pickles import EVIL, PROTO2, npy, torch_zip, zipped

NAMES: Final = ("pytorch_model.bin", "model.pt", "notes.txt", "spiece.model", "vocab.json", "LICENSE")


def facts(data: bytes, name: str = "pytorch_model.bin") -> tuple[PickleFacts, ...]:
    collector = EvidenceCollector()
    collector.add(name, io.BytesIO(data), len(data))
    return collector.result().pickles


def verdicts(data: bytes, name: str = "pytorch_model.bin") -> set[str]:
    return {one.verdict for one in facts(data, name)}


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param(b"I0x10\n0", id="hex"),
        pytest.param(b"I0b1\n0", id="binary"),
        pytest.param(b"L0x10L\n0", id="long-hex"),
        pytest.param(b"L0o7L\n0", id="long-octal"),
        pytest.param(b"L-0x5\n0", id="long-negative"),
        pytest.param(b"I0x" + b"0" * 9_000 + b"\n0", id="long-line-of-digits"),
        pytest.param(b"I1\0tail\n0", id="zero-byte"),
        pytest.param(PROTO2 + b"I0x10\n0", id="protocol"),
        pytest.param(b"Nr\xff\xff\x0f\x000", id="far-memo"),
        pytest.param(b"Np1000001\n0", id="far-memo-in-text"),
        pytest.param(b"S'" + b"a" * 5_000 + b"'\n0", id="string-longer-than-a-head"),
        pytest.param(b"V" + b"a" * 2_000_000 + b"\n0", id="line-of-megabytes"),
        pytest.param(b"N0" * 3_000, id="many-values"),
        pytest.param(b"\x95" + b"\xff" * 7 + b"\x0f", id="frame-longer-than-the-file"),
        pytest.param(b"C\x01a\x980", id="read-only-buffer"),
        pytest.param(b"I0x10\n.", id="pickle-before"),
    ],
)
def test_what_both_unpicklers_go_on_behind_hides_nothing(prefix: bytes, name: str) -> None:
    assert verdicts(prefix + EVIL, name) == {"code"}


@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_with_too_many_instructions_is_unreadable_and_not_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(pickle_findings, "MAX_INSTRUCTIONS", 1_000)

    assert verdicts(b"N0" * 2_000 + EVIL, name) == {"unreadable"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x95" + struct.pack("<Q", 5) + b"Vabcdefg\n.", id="line"),
        pytest.param(b"\x95" + struct.pack("<Q", 2) + b"J\0\0\0\0.", id="number"),
        pytest.param(b"\x95" + struct.pack("<Q", 4) + b"N.N.", id="stop-inside"),
        pytest.param(b"\x95" + struct.pack("<Q", 12) + b"N\x95" + struct.pack("<Q", 9) + b"N" * 9 + b".", id="frame"),
    ],
)
def test_a_frame_that_ends_inside_an_instruction_is_never_judged_harmless(body: bytes) -> None:
    """C's unpickler loses the rest of such a frame and goes on elsewhere."""
    assert verdicts(b"\x80\x04" + body) == {"unreadable"}


@pytest.mark.parametrize("name", ["weights.bin", "startup.pth", "notes.txt"])
@pytest.mark.parametrize(
    "text",
    [
        b"import os; print('x')\nfrom sys import path\n",
        b"(in this file, see below\nand above)\n",
        b"Never mind.\ncat sat\non the mat\n",
        b"config for all\nthings there are\n",
        b"Value\n0.1\n",
        b"I am\ncat\ndog\n",
        b"const x=" + b"y" * 20_000 + b"\nz\n",
    ],
)
def test_prose_is_no_pickle(text: bytes, name: str) -> None:
    assert facts(text, name) == ()


def test_two_words_of_a_vocabulary_are_an_import_only_under_the_name_of_a_pickle() -> None:
    assert facts(b"cat\ndog\nmouse\n", "vocab.txt") == ()
    assert verdicts(b"cat\ndog\nmouse\n", "model.pt") == {"code"}


# Arrays.


def array(kind: str, version: int, pickled: bytes = EVIL) -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': (1,), }}".encode()
    header = header.ljust(117) + b"\n"
    return (
        b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + pickled
    )


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", ["a.npy", "a.bin", "a.npz"])
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "kind",
    ["'|O'", "'O8'", "'object'", r"'|\x4f'", r"'\117'", "[('a', 'object')]", "[('a', '<f4'), ('b', [('c', 'O')])]",
     "('O', (2,))", "'O,i4'", "('V8', {'a': ('O', 0)})", "[(('t', 'n'), 'O', 3)]", "None"],
)  # fmt: skip
def test_an_array_of_objects_is_one_however_it_is_spelled(kind: str, version: int, name: str) -> None:
    data = array(kind, version)

    assert verdicts(zipped({"a.npy": data}) if name == "a.npz" else data, name) == {"code"}


def test_an_unlisted_kind_is_code_although_the_pickle_behind_it_is_harmless() -> None:
    assert [one.verdict for one in facts(array("'O,i4'", 1, b"N."), "a.npy")] == ["code"]
    assert [one.verdict for one in facts(npy(b"N."), "a.npy")] == ["plain"]


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2, "<f4"), np.zeros(2, bool), np.zeros(2, "U7"), np.zeros(2, "S3"), np.zeros(2, "M8[ns]"),
        np.zeros(2, "m8[25us]"), np.zeros(2, "V2"), np.zeros(2, "<c16"), np.zeros(2, [("a", "f4"), ("b", "i2", (3,))]),
    ],
    ids=str,
)  # fmt: skip
def test_an_array_of_numbers_holds_no_pickle(value: object) -> None:
    target = io.BytesIO()
    np.save(target, value)

    assert facts(target.getvalue(), "a.npy") == ()


@pytest.mark.parametrize("header", [b"\x93NUMPY\x04\0\x02\0{}", b"\x93NUMPY\x01\0\xff\xff", b"\x93NUMPY\x01\0\x02\0[]"])
def test_a_header_that_cannot_be_read_is_unreadable(header: bytes) -> None:
    assert verdicts(header + EVIL, "a.npy") == {"unreadable"}


# Containers.


def tarred(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("member", ["storages", "tensors", "pickle", "notes.txt"])
def test_the_members_of_a_tar_are_read(member: str, name: str) -> None:
    data = tarred({"a": b"text\n", member: EVIL})

    assert [(one.member, one.verdict) for one in facts(data, name)] == [(member, "code")]


def test_a_tar_without_a_pickle_says_nothing() -> None:
    assert facts(tarred({"README": b"cat\n", "vocab.txt": b"cat\ndog\n"}), "data.tar") == ()


def test_a_tar_whose_first_name_is_a_pickle_is_one() -> None:
    assert "code" in verdicts(tarred({EVIL.decode(): b""}), "data.tar")


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", [*NAMES, "a.joblib"])
@pytest.mark.parametrize(
    "pack",
    [
        zlib.compress, gzip.compress, bz2.compress, lzma.compress,
        lambda data: lzma.compress(data, lzma.FORMAT_ALONE), lambda data: gzip.compress(b"") + gzip.compress(data),
        lambda data: zlib.compress(data)[:-4], lambda data: gzip.compress(b"V" + b"a" * 200_000 + b"\n0" + data),
    ],
    ids=["zlib", "gzip", "bzip2", "xz", "lzma", "second-stream", "cut-off", "behind-a-long-line"],
)  # fmt: skip
def test_a_packed_pickle_is_read(pack: Callable[[bytes], bytes], name: str) -> None:
    assert verdicts(pack(PROTO2 + EVIL), name) == {"code"}
    assert verdicts(pack(pickle.dumps(np.float32(1))), name) == {"unreadable"}


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_text_is_no_pickle(pack: Callable[[bytes], bytes]) -> None:
    assert facts(pack(b"a text\n" * 50_000), "corpus.bin") == ()
    assert verdicts(pack(b"a text\n"), "a.pkl") == {"unreadable"}


def test_what_joblib_packs_with_lz4_is_unreadable_under_any_name() -> None:
    assert verdicts(b"\x04\x22\x4d\x18" + bytes(20), "notes.txt") == {"unreadable"}


def test_nothing_in_a_container_uses_up_the_bounds_before_its_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_findings, "MAX_INSTRUCTIONS", 1_000)
    padding = {f"a/{number}.pkl": b"N0" * 400 for number in range(9)}
    data = zipped({**padding, "a/data.pkl": EVIL}, method=zipfile.ZIP_DEFLATED)

    assert ("a/data.pkl", "code") in {(one.member, one.verdict) for one in facts(data)}
    assert verdicts(torch_zip(b"I0x10\n0" + EVIL)) == {"code"}


@pytest.mark.parametrize("name", ["weights.bin", "notes.txt"])
@pytest.mark.parametrize("number", [b"\x82\x07", b"\x83\x07\x00", b"\x84\x07\x00\x00\x00"])
def test_a_registered_name_that_is_filled_is_code(number: bytes, name: str) -> None:
    assert verdicts(b"(" + number + b"\x8c\x01aa.", name) == {"code"}
