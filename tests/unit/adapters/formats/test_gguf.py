"""The GGUF header: facts of a model, and a typed refusal of whatever claims more than its file holds."""

from __future__ import annotations

import hashlib
import io
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.formats import gguf, gguf_reader
from adapters.formats.documents import DocumentProblem
from bus.messages.artifacts import WeightFacts
from tests.support import model_files
from tests.support.model_files import llama_gguf

# For one example, on a machine that does other things too.
BOUNDED = settings(deadline=2_000)

HEAD = struct.Struct("<4sIQQ")


def facts_of(data: bytes) -> WeightFacts:
    return gguf.weight_facts("m", gguf.read_header(io.BytesIO(data), len(data)))


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(*pairs: bytes, tensors: int = 0, count: int | None = None, version: int = 3) -> bytes:
    return HEAD.pack(b"GGUF", version, tensors, len(pairs) if count is None else count) + b"".join(pairs)


def array(kind: int, count: int, content: bytes = b"") -> bytes:
    return text(b"a") + struct.pack("<IIQ", 9, kind, count) + content


def info(name: bytes, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def test_a_header_gives_what_an_operator_asks() -> None:
    facts = facts_of(llama_gguf(tokenizer__chat_template="{{ x }}", split__no=0, split__count=2))

    assert (facts.format, facts.tensors, facts.parameters) == ("gguf", 3, 256 * 6)
    assert facts.bytes_by_dtype == {"F32": 1024, "Q4_K": 5 * 144}
    names = b"blk.0.attn_q.weight\noutput_norm.weight\ntoken_embd.weight\n"
    assert facts.names_sha256 == hashlib.sha256(names).hexdigest()
    assert facts.metadata == {
        "version": "3",
        "architecture": "llama",
        "quantization": "Q4_K_M",
        "context_length": "2048",
        "block_count": "1",
        "embedding_length": "256",
        "tokenizer": "gpt2",
        "split_no": "0",
        "split_count": "2",
        "chat_template": "present",
    }


@pytest.mark.req("A10")
@pytest.mark.parametrize(("number", "name"), [(0, "F32"), (1, "F16"), (7, "Q8_0"), (15, "Q4_K_M"), (1024 + 18, "Q6_K")])
def test_the_quantization_has_the_name_that_people_use(number: int, name: str) -> None:
    assert facts_of(llama_gguf(file_type=number)).metadata["quantization"] == name


@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_the_weights_begin_where_the_alignment_says(alignment: int) -> None:
    data = llama_gguf(general__alignment=alignment)
    begin = gguf.read_header(io.BytesIO(data), len(data)).data_begin
    assert begin % alignment == 0
    with pytest.raises(DocumentProblem, match="cut off"):
        facts_of(data[: -alignment - 1])


def test_an_unknown_file_type_is_not_guessed() -> None:
    assert "quantization" not in facts_of(llama_gguf(file_type=4)).metadata


def test_version_2_and_any_alignment_are_read() -> None:
    assert facts_of(model_files.gguf({"general.architecture": "bert"}, version=2)).metadata["version"] == "2"
    assert facts_of(llama_gguf(general__alignment=64)).tensors == 3


def test_metadata_is_cleaned_and_cut() -> None:
    facts = facts_of(model_files.gguf({"general.architecture": "\x1b]0;x\x07" + "y" * 500}))
    assert set(facts.metadata["architecture"]) == {"y"}
    assert len(facts.metadata["architecture"]) <= 128


def test_weights_are_never_read() -> None:
    head = llama_gguf()
    data = head[:-1744] + bytes(1744)
    file = io.BytesIO(data + bytes(8 * 1024 * 1024))
    gguf.read_header(file, len(data) + 8 * 1024 * 1024)
    assert file.tell() <= 64 * 1024


@pytest.mark.parametrize("more", [0, 1, 31, 4096])
def test_padding_behind_the_last_tensor_may_be_there_or_not(more: int) -> None:
    data = model_files.gguf({}, {"a": ("F32", (3,))})
    unpadded = data[:-20]
    assert facts_of(unpadded + bytes(more)).parameters == 3


@pytest.mark.parametrize("cut", [1, 20, 1024, 1400])
def test_a_cut_file_says_how_much_is_missing(cut: int) -> None:
    data = llama_gguf()
    with pytest.raises(DocumentProblem, match=f"cut off: {cut} bytes"):
        facts_of(data[:-cut])


HOSTILE = {
    "empty": (b"", "shorter"),
    "half a head": (b"GGUF\x03\x00\x00\x00\x01", "shorter"),
    "other magic": (b"GGML" + bytes(40), "does not begin"),
    "html": (model_files.HTML_PAGE, "does not begin"),
    "version 1": (header(version=1), "version 1"),
    "version 4": (header(version=4), "version 4"),
    "version 0": (header(version=0), "version 0"),
    "big-endian": (model_files.gguf({"general.architecture": "x"}, big_endian=True), "big-endian"),
    "the 49 bytes": (HEAD.pack(b"GGUF", 3, 0, 1) + text(b"k") + struct.pack("<IIQ", 9, 4, 2**63)[:16], "ends inside"),
    "2^63 pairs": (header(count=2**63) + bytes(25), "number of pairs"),
    "pairs that do not fit": (header(count=100) + bytes(64), "ends inside"),
    "2^63 tensors": (header(tensors=2**63) + bytes(25), "number of tensors"),
    "tensors that do not fit": (header(tensors=100) + bytes(64), "ends inside"),
    "long key": (header(text(b"k" * 1_025) + struct.pack("<IB", 0, 0)), "longer than 1024"),
    "text of 2^64": (header(b"\xff" * 8 + bytes(16)), "longer than the rest"),
    "key no UTF-8": (header(text(b"\xff\xfe") + struct.pack("<IB", 0, 0)), "not UTF-8"),
    "one key twice": (header(*[text(b"k") + struct.pack("<IB", 0, 0)] * 2), "one key twice"),
    "unknown type": (header(text(b"k") + struct.pack("<II", 13, 0)), "unknown type 13"),
    "array of unknown": (header(array(77, 1, bytes(8))), "unknown type 77"),
    "numbers of 2^63": (header(array(0, 2**63, bytes(8))), "ends inside"),
    "numbers of 2^61 by 8": (header(array(10, 2**61, bytes(8))), "ends inside"),
    "texts of 2^63": (header(array(8, 2**63, bytes(8))), "more entries than"),
    "a text in an array": (header(array(8, 1, struct.pack("<Q", 2**40))), "ends inside"),
    "arrays 1,000 deep": (header(text(b"a") + b"\x09\x00\x00\x00" + struct.pack("<IQ", 9, 1) * 1_000), "deeper than 4"),
    "arrays 2^63 wide": (header(array(9, 2**63, bytes(64))), "more than 10000 arrays"),
    "alignment 0": (header(text(b"general.alignment") + struct.pack("<II", 4, 0)), "power of two"),
    "alignment 48": (header(text(b"general.alignment") + struct.pack("<II", 4, 48)), "power of two"),
    "alignment true": (header(text(b"general.alignment") + struct.pack("<I?", 7, True)), "power of two"),
    "long name": (header(info(b"n" * 257, (1,)), tensors=1, count=0), "longer than 256"),
    "one tensor twice": (
        header(info(b"n", (8,)), info(b"n", (8,), offset=32), tensors=2, count=0) + bytes(128),
        "one tensor twice",
    ),
    "five dimensions": (header(info(b"n", (1, 1, 1, 1, 1)), tensors=1, count=0), "more than 4 dimensions"),
    "2^32 dimensions": (header(text(b"n") + b"\xff" * 32, tensors=1, count=0), "more than 4 dimensions"),
    "removed type": (header(info(b"n", (32,), kind=4), tensors=1, count=0), "the type 4"),
    "huge dimension": (header(info(b"n", (2**63,)), tensors=1, count=0), "impossible shape"),
    "huge product": (header(info(b"n", (2**32, 2**32)), tensors=1, count=0), "impossible shape"),
    "huge offset": (header(info(b"n", (1,), offset=2**64 - 32), tensors=1, count=0), "impossible shape"),
    "row of no block": (header(info(b"n", (100,), kind=12), tensors=1, count=0), "blocks of Q4_K"),
    "unaligned": (header(info(b"n", (1,), offset=8), tensors=1, count=0) + bytes(128), "multiple of 32"),
    "overlap": (
        header(info(b"n", (64,)), info(b"m", (8,), offset=32), tensors=2, count=0) + bytes(512),
        "overlap",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_header_that_claims_too_much_is_refused_by_name(case: str) -> None:
    data, words = HOSTILE[case]
    with pytest.raises(DocumentProblem, match=words):
        facts_of(data)


def test_the_walk_over_texts_has_an_end() -> None:
    """Each text is there, and there are more of them than a vocabulary has."""
    count = gguf_reader.MAX_WALKED + 1
    data = header(array(8, count)) + bytes(8 * count)
    with pytest.raises(DocumentProblem, match="more than 3000000 entries"):
        facts_of(data)


def test_a_sparse_header_is_not_read_to_its_end() -> None:
    """A file of holes costs nothing to make; an array over a terabyte of it costs nothing to refuse."""
    data = header(array(0, 2**39))
    with pytest.raises(DocumentProblem, match="larger than"):
        gguf.read_header(io.BytesIO(data), 2**40)


def test_a_vocabulary_is_passed_over() -> None:
    tokens = [f"token{number}" for number in range(20_000)]
    facts = facts_of(model_files.gguf({"tokenizer.ggml.tokens": tokens, "general.architecture": "bert"}))
    assert facts.metadata["architecture"] == "bert"


def test_a_file_that_shrinks_meanwhile_is_a_problem() -> None:
    with pytest.raises(DocumentProblem, match="shorter than it was"):
        gguf.read_header(io.BytesIO(llama_gguf()[:40]), 4_000)


@BOUNDED
@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for candidate in (data, header(count=1) + data, header(tensors=1, count=0) + data):
        with suppress(DocumentProblem):
            facts_of(candidate)


@BOUNDED
@given(st.data())
def test_a_changed_file_is_facts_or_a_problem(data: st.DataObject) -> None:
    file = bytearray(llama_gguf(split__count=2, tokenizer__ggml__scores=[0.5, 1.5]))
    changes = st.tuples(st.integers(0, 600), st.sampled_from([0, 1, 8, 9, 127, 128, 255]))
    for at, value in data.draw(st.lists(changes, min_size=1, max_size=4)):
        file[at] = value
    cut = data.draw(st.integers(0, len(file)) | st.just(len(file)))
    with suppress(DocumentProblem):
        assert sum(facts_of(bytes(file[:cut])).bytes_by_dtype.values()) <= cut
