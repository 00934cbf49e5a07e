"""Every reader that would take a file is asked, whatever else the file is, and none of them is led astray."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle  # noqa: TID251 -- the tests make pickles
import struct
import tarfile
import zlib
from collections.abc import Callable
from typing import Final

import joblib
import numpy as np
import pytest

from adapters.formats.evidence import EvidenceCollector
from bus.messages.artifacts import PickleFacts
from tests.support.pickles import EVIL, EVIL_BODY, PROTO2, PROTO4, text, zipped

NAMES: Final = ("pytorch_model.bin", "a.dat", "a.npy", "model.safetensors", "notes.txt")
LONG: Final = PROTO4 + b"cos\n" + b"path.os." * 1_200 + b"mkdir\n(S'marker'\ntR."


def facts(data: bytes, name: str = "pytorch_model.bin") -> tuple[PickleFacts, ...]:
    collector = EvidenceCollector()
    collector.add(name, io.BytesIO(data), len(data))
    return collector.result().pickles


def verdicts(data: bytes, name: str = "pytorch_model.bin") -> set[str]:
    return {one.verdict for one in facts(data, name)}


# Names and places that are longer than what is kept.


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(LONG, id="name"),
        pytest.param(PROTO4 + b"(S'marker'\nios\n" + b"path.os." * 1_200 + b"mkdir\n.", id="called-at-once"),
        pytest.param(b"c" + b"a." * 5_000 + b"a\nmkdir\n(S'marker'\ntR.", id="module"),
        pytest.param(b"Np" + b" " * 9_000 + b"1\n0" + EVIL, id="place-of-the-memo"),
        pytest.param(gzip.compress(LONG), id="packed"),
        pytest.param(zipped({"a/data.pkl": LONG}), id="zip"),
        # A header of 17,987 bytes whose length begins with an instruction that passes over the JSON.
        pytest.param(
            struct.pack("<Q", 0x4643) + b'{"a":"' + b"x" * 58 + b'V"}'.ljust(0x4643 - 64) + b"\n" + LONG,
            id="safetensors",
        ),
    ],
)
def test_what_is_too_long_to_be_followed_is_unreadable_and_not_nothing(data: bytes, name: str) -> None:
    assert verdicts(data, name) == {"unreadable"}


@pytest.mark.parametrize("name", ["notes.txt", "weights.bin"])
@pytest.mark.parametrize(
    "data", [b"cat\n" + b"A line of text. " * 2_000, b"const x=" + b"y" * 20_000 + b"\nz\n", b"p\0" + bytes(20_000)]
)
def test_a_long_line_of_prose_is_no_name(data: bytes, name: str) -> None:
    assert facts(data, name) == ()


# Two formats in one file.


def tar(members: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "elsewhere"
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def begun(begins: bytes, data: bytes, checksum: Callable[[int], bytes] = lambda number: b"%06o\0 " % number) -> bytes:
    """The same tar with another beginning in its first name, and the checksum of that."""
    block = bytearray(data[:512])
    block[: len(begins)] = begins
    block[148:156] = b" " * 8
    block[148:156] = checksum(sum(block))
    return bytes(block) + data[512:]


NPY: Final = (
    b"\x93NUMPY\x01\0" + struct.pack("<H", 57) + b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}".ljust(57)
)


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "begins",
    [
        b"GIF89a", b"%PDF-", b"OggS", b"fLaC", b"Rar!\x1a\x07", b"ID3\x03", b"GGUF\x03\0\0\0", b"\x1f\x8b\x08", b"x\x9c",
        b"\x89HDF\r\n\x1a\n", b"\x08\0\0\0\0\0\0\0{}", b"PK\x05\x06" + bytes(16) + b"\xff\x0f", NPY,
    ],
    ids=lambda begins: repr(begins[:4]),
)  # fmt: skip
def test_a_tar_is_read_whatever_its_first_name_begins_with(begins: bytes, name: str) -> None:
    data = begun(begins, tar({"a" * 99: b"", "storages": EVIL}))

    assert ("storages", "code") in {(one.member, one.verdict) for one in facts(data, name)}


@pytest.mark.parametrize("name", NAMES)
def test_a_tar_needs_no_mark_and_may_count_to_the_base_256(name: str) -> None:
    plain = tar({"storages": EVIL})
    unmarked = plain[:257] + bytes(8) + plain[265:]

    assert verdicts(begun(b"", unmarked, lambda number: b"\x80" + number.to_bytes(7, "big")), name) == {"code"}


def test_a_packed_pickle_that_is_also_a_tar_is_unpacked() -> None:
    header = b"\x1f\x8b\x08\x04" + bytes(4) + b"\0\x03" + struct.pack("<H", 600)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = begun(b"", header + bytes(600)) + packer.compress(EVIL) + packer.flush()

    assert verdicts(data + struct.pack("<II", zlib.crc32(EVIL), len(EVIL)), "a.joblib") == {"code"}


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "a.pt", "a.dat"])
@pytest.mark.parametrize("member", ["storages", "pickle", "./storages", ".//pickle"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_torchs_tar_is_never_judged_harmless(kind: bytes, member: str, name: str) -> None:
    content = pickle.dumps(0, protocol=2) if kind == tarfile.REGTYPE else b""

    assert "unreadable" in verdicts(tar({member: content}, kind), name)


# Packed.


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "a.dat", "a.joblib"])
@pytest.mark.parametrize("length", [b"0x2f", b"2f", b"0X2F", b" 2f", b"+2_f"])
@pytest.mark.parametrize("space", [b"", b" "])
def test_joblibs_old_packing_is_read_with_every_spelling_of_its_length(space: bytes, length: bytes, name: str) -> None:
    assert verdicts(b"ZF" + length.ljust(19) + space + zlib.compress(EVIL), name) == {"code"}


def test_a_text_that_begins_like_joblibs_old_packing_is_none() -> None:
    assert facts(b"ZF is a maker of gearboxes.\n", "notes.txt") == ()


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "a.dat", "a.xz"])
def test_what_takes_too_much_memory_to_unpack_is_unreadable_and_not_nothing(name: str) -> None:
    alone = lzma.compress(EVIL, lzma.FORMAT_ALONE)
    small = lzma.compress(EVIL, lzma.FORMAT_XZ, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 4096}])
    # The size of the dictionary stands in the block's header, whose checksum is behind it.
    at = small.index(b"\x21\x01") + 2
    block = small[12:at] + b"\x22" + small[at + 1 : 20]
    large = small[:12] + block + struct.pack("<I", zlib.crc32(block)) + small[24:]

    assert verdicts(alone[:1] + struct.pack("<I", 2**30) + alone[5:], name) == {"unreadable"}
    assert verdicts(large, name) == {"unreadable"}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_text_under_a_common_name_is_no_pickle(pack: Callable[[bytes], bytes]) -> None:
    assert facts(pack(b"a text\n" * 9), "corpus.dat") == ()


# joblib's arrays.


def wrapper(shape: bytes = b"K\x01\x85", item_bytes: bytes = b"K\x01", more: bytes = b"") -> bytes:
    """An array of texts of one byte, and behind its bytes code that is passed over with a wrong size."""

    def key(word: str) -> bytes:
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    kind = b"cnumpy\ndtype\n" + key("S1") + b"\x85R(K\x03" + key("|") + b"NNN" + item_bytes + b"K\x01K\0tb"
    state = key("subclass") + b"cnumpy\nndarray\n" + key("shape") + shape + key("order") + key("C")
    state += key("dtype") + kind + key("allow_mmap") + b"\x88" + key("numpy_array_alignment_bytes") + b"K\x10"
    return PROTO2 + b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}(" + state + more + b"ub\0"


@pytest.mark.req("A4")
@pytest.mark.parametrize("name", ["a.joblib", "a.pkl", "a.dat"])
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(wrapper(item_bytes=b"M\0\x10"), id="items-of-another-size"),
        pytest.param(wrapper(more=text("shape") + b"K\x02\x85"), id="key-twice"),
        pytest.param(wrapper(more=b"V\\u0073hape\nK\x02\x85"), id="key-that-is-not-told"),
        pytest.param(wrapper(more=text("extra") + b"N"), id="unknown-key"),
        pytest.param(wrapper(more=b"".join(text(f"z{n}") + b"N" for n in range(12)) + text("shape") + b"N"), id="many"),
    ],
)
def test_an_array_whose_size_can_be_told_otherwise_is_unreadable(head: bytes, name: str) -> None:
    assert verdicts(head + b"a" + b"N." + EVIL_BODY, name) == {"unreadable"}


@pytest.mark.parametrize("kind", ["f4", "i8", "U3", "S5", "M8[s]", "c8"])
def test_arrays_as_joblib_writes_them_stay_harmless(kind: str) -> None:
    target = io.BytesIO()
    joblib.dump({"a": np.zeros(3, kind), "b": np.zeros((2, 2), kind)}, target)

    assert verdicts(target.getvalue(), "a.joblib") == {"tensors"}
    assert [one.verdict for one in facts(wrapper() + b"a.", "a.joblib")] == ["tensors"]
