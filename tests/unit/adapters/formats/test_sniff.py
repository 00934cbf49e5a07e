"""What a file is by its bytes: every format that is told apart, and no false alarm over text."""

from __future__ import annotations

import bz2
import io
import struct
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.formats import pickle_head, zips
from adapters.formats.documents import DocumentProblem
from adapters.formats.sniff import HEAD_BYTES, sniff, sniff_file
from bus.messages.artifacts import FileFormat
from tests.support import model_files as files
from tests.support import repo

# For one example, on a machine that does other things too.
BOUNDED = settings(deadline=2_000)

LONG_TEXT = "die Würde des Menschen ist unantastbar\n".encode() * 200
OLD_TAR = bytearray(files.tar_file({"a": b"b"}))
OLD_TAR[257:265] = bytes(8)
OLD_TAR[148:156] = b"%06o\0 " % (sum(OLD_TAR[:148]) + sum(OLD_TAR[156:512]) + 8 * 32)

SAMPLES: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("safetensors", files.safetensors(files.bert_tensors())),
    ("safetensors", files.framed({})),
    ("safetensors", struct.pack("<Q", 10 * 10**9) + b'{"a":'),
    ("safetensors", struct.pack("<Q", 0x0280) + b'{"a":1}' + b" " * 0x0280),  # its length is a pickle's magic
    ("safetensors", struct.pack("<Q", 0x8B1F) + b"{" + b" " * 0x8B1F),  # and that of gzip
    ("gguf", files.llama_gguf()),
    ("gguf", files.gguf({}, big_endian=True)),
    ("gguf", struct.pack("<4sIQQ", b"GGUF", 3, 0x7B, 1)),  # 123 tensors: the bracket of a Safetensors header
    ("gguf", b"GGUF"),
    ("pickle", files.EVIL_PICKLE),
    ("pickle", files.EVIL_PICKLE_0),
    ("pickle", files.PLAIN_PICKLE),
    ("pickle", files.torch_pickle()),
    ("pickle", b"\x80\x04"),
    ("pickle", b"\x80\x00cposix\nsystem\n(S'true'\ntR."),
    ("pickle", b"(lp0\nI1\naI2\na."),
    ("pickle", b"(dp0\nS'weight'\np1\n(lp2\nF1.5\na" + b"F2.5\na" * 2_000 + b"s."),
    ("pickle", b"(iposix\nsystem\n."),
    ("pickle", b"}q\x00(X\x01\x00\x00\x00aq\x01K\x01X\x01\x00\x00\x00bq\x02K\x02u."),
    ("pickle", files.EVIL_PICKLE_0 + b"\x00 what comes after the call makes no sense"),
    # A right Safetensors header for one reader, a call for another.
    ("pickle", b"\x80\x02X\x05\x00\x00\x00\x00{abc" + files.EVIL_PICKLE[2:]),
    ("torch_zip", files.torch_zip()),
    ("torch_zip", files.zip_file({"a": b"x", "folder/data.pkl": files.EVIL_PICKLE})),
    ("torch_zip", files.zip_file({"data.pkl": files.EVIL_PICKLE}, compressed=True)),
    ("zip", files.zip_file({"a": b"x", "notdata.pkl": b"x"})),
    ("zip", files.zip_file({})),
    ("zip", files.torch_zip()[:4] + bytes(100)),
    ("onnx", files.onnx_file()),
    ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(88)),
    ("numpy", files.numpy_file()),
    ("tflite", b"\x1c\x00\x00\x00TFL3" + bytes(64)),
    ("ctranslate2", files.ctranslate2_file()),
    ("lfs_pointer", files.lfs_pointer()),
    ("lfs_pointer", files.lfs_pointer().replace(b"\n", b"\r\n")),
    ("json", b' \n{"a": 1}'),
    ("json", b"[1, 2]"),
    ("json", b'[{"a": null}]'),
    ("json", b'{"weight_map": {' + b'"a": "b", ' * 1_000),
    ("html", files.HTML_PAGE),
    ("html", b"\xef\xbb\xbf\n<!-- a -->\n<HTML lang='en'>"),
    ("python", b"import torch\n"),
    ("python", b'# coding: utf-8\n"""What it does.\n\nMore."""\n\nfrom torch import nn\n'),
    ("python", b"#!/usr/bin/env python3\nprint(1)\n"),
    ("python", b"class Model(nn.Module):\n    pass\n"),
    ("python", b"@dataclass\nclass A:\n"),
    ("python", b"__import__('os').system('true')"),
    ("script", b"#!/bin/sh\ntrue\n"),
    ("script", b"<?php system('id');"),
    ("text", b"# Title\n\nimport is a keyword, and so is from.\n"),
    ("text", b"from there to here\n"),
    ("text", b"class struggle: a history\n"),
    ("text", b"[PAD]\n[unused0]\n"),
    ("text", b"{% if messages %}{{ messages }}{% endif %}"),
    ("text", b"#version: 0.2\nt h\n"),
    ("text", b"GGUF is a format\n"),
    ("text", b"MZ" + b"z" * 100),
    ("text", b"RIFF raff"),
    ("text", b"\x1b[31mred\x1b[0m"),
    ("text", LONG_TEXT),
    ("text", "\ufeffBOM\n".encode("utf-16-le")),
    ("text", b"N."),
    ("text", b"NNNNNNNN"),
    ("text", b"}}}}]]]]))))"),
    ("tar", files.tar_file({"model.safetensors": b"x"})),
    ("tar", bytes(OLD_TAR)),
    ("gzip", files.gzip_file()),
    ("bzip2", bz2.compress(b"hello")),
    ("xz", files.xz_file()),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(20)),
    ("seven_zip", b"7z\xbc\xaf\x27\x1c" + bytes(26)),
    ("rar", b"Rar!\x1a\x07\x01\x00" + bytes(20)),
    ("elf", files.ELF),
    ("pe", files.pe_file()),
    ("mach_o", b"\xcf\xfa\xed\xfe" + bytes(28)),
    ("mach_o", b"\xca\xfe\xba\xbe\x00\x00\x00\x02" + bytes(40)),
    ("wasm", b"\x00asm\x01\x00\x00\x00"),
    ("image", files.PNG),
    ("image", b"\xff\xd8\xff\xe0" + bytes(20)),
    ("image", b"RIFF\x24\x00\x00\x00WEBPVP8 " + bytes(20)),
    ("audio", b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(28)),
    ("audio", b"fLaC" + bytes(40)),
    ("audio", b"ID3\x04" + bytes(40)),
    ("pdf", b"%PDF-1.7\n"),
    ("binary", b"\xca\xfe\xba\xbe\x00\x00\x00\x41" + bytes(40)),  # a Java class
    ("binary", bytes(4_096)),
    ("binary", b"caf\xe9 au lait"),
]


@pytest.mark.parametrize(("expected", "data"), SAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_file_is_what_its_bytes_say(expected: str, data: bytes) -> None:
    file = io.BytesIO(data)
    found, head = sniff_file(file, len(data))

    assert found == expected
    assert head == data[:HEAD_BYTES]
    assert file.tell() == 0


def test_every_format_has_a_sample() -> None:
    assert {expected for expected, _ in SAMPLES} == {found.value for found in FileFormat}


def test_our_own_sources_are_python_and_text_and_nothing_else() -> None:
    """Text begins with letters that are opcodes; none of it may be taken for a pickle."""
    sources = [repo.text(path).encode() for path in repo.python_files(*repo.ROOMS)]
    found = {sniff(text[:HEAD_BYTES], len(text)) for text in sources}

    assert found <= {FileFormat.PYTHON, FileFormat.TEXT, FileFormat.EMPTY}
    assert FileFormat.PYTHON in found


@pytest.mark.parametrize("first", sorted(pickle_head._FIRST))
def test_a_letter_that_is_an_opcode_begins_no_pickle(first: int) -> None:
    for rest in (b"\n", b"hello world\n", b"\nnext\n.", b" = 1\n" * 50):
        assert not pickle_head.is_pickle(bytes([first]) + rest, 1 + len(rest))


def test_the_directory_counts_and_not_the_first_entry() -> None:
    """Only the directory names the pickle; the head of the file alone does not."""
    data = files.zip_file({"readme": b"x" * 8_000, "archive/data.pkl": files.EVIL_PICKLE})
    assert sniff(data[:HEAD_BYTES], len(data)) is FileFormat.ZIP
    assert sniff_file(io.BytesIO(data), len(data))[0] is FileFormat.TORCH_ZIP


def test_a_zip_of_64_bits_and_a_comment_is_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        with archive.open(zipfile.ZipInfo("big"), "w", force_zip64=True) as entry:
            entry.write(b"x")
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), b"x")
        archive.comment = b"c" * 65_535
    data = out.getvalue()
    assert zips.entry_names(io.BytesIO(data), len(data)) == ["big", "archive/data.pkl"]


def test_the_directory_of_64_bits_is_found() -> None:
    data = files.zip_file({"a/data.pkl": b"x"})
    at = data.rindex(b"PK\x05\x06")
    length, begin = struct.unpack_from("<II", data, at + 12)
    end = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, length, begin)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    whole = data[:at] + end + locator + last
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.namelist() == ["a/data.pkl"]
    assert zips.entry_names(io.BytesIO(whole), len(whole)) == ["a/data.pkl"]


@pytest.mark.parametrize(
    ("length", "words"), [(2**31, "larger than the file"), (0xFFFFFFFF, "no directory"), (10**9, "larger than")]
)
def test_a_directory_that_claims_too_much_is_not_read(length: int, words: str) -> None:
    data = bytearray(files.zip_file({"a": b"x"}))
    struct.pack_into("<I", data, data.rindex(b"PK\x05\x06") + 12, length)
    with pytest.raises(DocumentProblem, match=words):
        zips.entry_names(io.BytesIO(bytes(data)), len(data))


def test_a_large_directory_in_a_large_file_is_not_read() -> None:
    data = bytearray(files.zip_file({"a": b"x"}))
    at = data.rindex(b"PK\x05\x06")
    struct.pack_into("<I", data, at + 12, zips.MAX_DIRECTORY_BYTES + 1)
    whole = bytes(zips.MAX_DIRECTORY_BYTES * 2) + bytes(data[at:])
    with pytest.raises(DocumentProblem, match="too large"):
        zips.entry_names(io.BytesIO(whole), len(whole))


@BOUNDED
@given(st.binary(max_size=600), st.integers(0, 10_000))
def test_any_bytes_have_a_format(data: bytes, more: int) -> None:
    assert sniff(data, len(data) + more) in FileFormat


@BOUNDED
@given(st.sampled_from([data for _, data in SAMPLES if data]), st.data())
def test_a_changed_file_has_a_format(data: bytes, draw: st.DataObject) -> None:
    changed = bytearray(data)
    for at, value in draw.draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=3)):
        changed[at] = value
    cut = bytes(changed[: draw.draw(st.integers(1, len(data)))])
    assert sniff_file(io.BytesIO(cut), len(cut))[0] in FileFormat


@BOUNDED
@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=300))
def test_words_are_never_taken_for_a_model(text: str) -> None:
    data = text.encode()
    assert sniff(data, len(data)) in {FileFormat.TEXT, FileFormat.JSON, FileFormat.PYTHON}
