"""The Safetensors header: every rule of the reference reader, within bounds, without reading a weight."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from adapters.formats import safetensors
from adapters.formats.documents import DocumentProblem
from bus.messages.artifacts import WeightFacts
from tests.support.model_files import bert_tensors, framed
from tests.support.model_files import safetensors as file_of

# For one example, on a machine that does other things too.
BOUNDED = settings(deadline=2_000)

GOOD: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "a": {"dtype": "F16", "shape": [4], "data_offsets": [24, 32]},
}


def reference(file: bytes) -> list[Any]:
    """What the reader that loads the weights makes of it."""
    return list(deserialize(file))  # type: ignore[no-untyped-call]  # it comes without types


class CountingFile(io.BytesIO):
    """Remembers how far it was read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def facts_of(data: bytes) -> WeightFacts:
    return safetensors.weight_facts("m", safetensors.read_header(io.BytesIO(data), len(data)))


def tensor(**changed: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}


def test_a_header_gives_counts_names_and_format_without_reading_weights() -> None:
    data = framed(GOOD, bytes(32))
    file = CountingFile(data)
    facts = safetensors.weight_facts("m", safetensors.read_header(file, len(data)))

    assert (facts.tensors, facts.parameters) == (2, 10)
    assert facts.bytes_by_dtype == {"F16": 8, "F32": 24}
    assert facts.names_sha256 == hashlib.sha256(b"a\nb\n").hexdigest()
    assert facts.metadata == {"format": "pt", "stacks": "0"}
    assert file.read_bytes == len(data) - 32


def test_the_builder_of_these_tests_writes_what_the_reference_reader_reads() -> None:
    assert sorted(name for name, _ in reference(file_of(bert_tensors()))) == sorted(bert_tensors())


def test_the_names_digest_knows_neither_order_nor_dtype() -> None:
    tensors = bert_tensors()
    turned = {name: ("F16", shape) for name, (_, shape) in reversed(tensors.items())}

    assert facts_of(file_of(tensors)).names_sha256 == facts_of(file_of(turned)).names_sha256
    assert facts_of(file_of(tensors)).names_sha256 != facts_of(file_of(bert_tensors(layers=1))).names_sha256


def test_the_format_that_a_stranger_wrote_is_cleaned_and_cut() -> None:
    data = framed({"__metadata__": {"format": "\x1b[31m" + "x" * 1_000}})
    assert facts_of(data).metadata["format"] == "x" * (safetensors.MAX_METADATA_CHARS - 5)


BROKEN = {
    "empty": (b"", "shorter"),
    "cut in its length": (b"\x10\x00\x00", "shorter"),
    "10 GB claim": (struct.pack("<Q", 10 * 10**9) + b"{}", "claims 10000000000 bytes"),
    "2^64 claim": (b"\xff" * 8 + b"{}", "claims"),
    "cut inside the header": (framed(GOOD, bytes(32))[:40], "ends inside"),
    "a list": (framed(b"[]"), "not a JSON object"),
    "blank first": (framed(b" {}"), "not a JSON object"),
    "no JSON": (framed(b"{nonsense"), "not valid"),
    "cut in the weights": (framed(GOOD, bytes(31)), "the file holds 31"),
    "bytes behind": (framed(GOOD, bytes(33)), "the file holds 33"),
    "gap before": (framed({"a": tensor(data_offsets=[4, 12])}, bytes(12)), "gap"),
    "gap between": (framed({"a": tensor(), "b": tensor(data_offsets=[12, 20])}, bytes(20)), "gap"),
    "overlap": (framed({"a": tensor(), "b": tensor(data_offsets=[4, 12])}, bytes(12)), "overlap"),
    "twice the same place": (framed({"a": tensor(), "b": tensor()}, bytes(8)), "overlap"),
    "unknown dtype": (framed({"a": tensor(dtype="F99")}, bytes(8)), "unknown dtype"),
    "negative size": (framed({"a": tensor(shape=[-2])}, bytes(8)), "impossible shape"),
    "true as a size": (framed({"a": tensor(shape=[True, 2])}, bytes(8)), "impossible shape"),
    "size with a point": (framed({"a": tensor(shape=[2.0])}, bytes(8)), "impossible shape"),
    "huge size": (framed({"a": tensor(shape=[2**64, 0], data_offsets=[0, 0])}), "impossible shape"),
    "huge product": (framed({"a": tensor(shape=[2**40, 2**40])}, bytes(8)), "impossible shape"),
    "too many dimensions": (framed({"a": tensor(shape=[1] * 17)}, bytes(8)), "impossible shape"),
    "shape and offsets differ": (framed({"a": tensor(shape=[3])}, bytes(8)), "do not match"),
    "end before begin": (framed({"a": tensor(data_offsets=[8, 0])}, bytes(8)), "do not match"),
    "false as an offset": (framed({"a": tensor(data_offsets=[False, 8])}, bytes(8)), "do not match"),
    "huge offset": (framed({"a": tensor(data_offsets=[2**70, 2**70 + 8])}, bytes(8)), "do not match"),
    "half a byte": (framed({"a": tensor(dtype="F4", shape=[3], data_offsets=[0, 2])}, bytes(2)), "do not match"),
    "three offsets": (framed({"a": tensor(data_offsets=[0, 4, 8])}, bytes(8)), "no dtype"),
    "only a dtype": (framed({"a": {"dtype": "F32"}}, bytes(8)), "no dtype"),
    "a number": (framed({"a": 1}), "no dtype"),
    "one name twice": (framed(b'{"a":1,"a":2}'), "twice"),
    "metadata no object": (framed({"__metadata__": ["pt"]}), "metadata"),
    "metadata no text": (framed({"__metadata__": {"format": 1}}), "metadata"),
    "deep": (framed(b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"), "deeper"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_header_that_breaks_a_rule_is_refused_by_name(case: str) -> None:
    data, words = BROKEN[case]
    with pytest.raises(DocumentProblem, match=words):
        safetensors.read_header(io.BytesIO(data), len(data))


def test_a_claim_is_refused_before_a_byte_of_it_is_read() -> None:
    file = CountingFile(struct.pack("<Q", 10 * 10**9) + b"{" * 1_000)
    with pytest.raises(DocumentProblem, match="claims"):
        safetensors.read_header(file, 2**40)
    assert file.read_bytes == 8


def test_more_tensors_than_a_model_has_are_refused() -> None:
    header = ",".join(f'"{number}":0' for number in range(safetensors.MAX_TENSORS + 1))
    data = framed(f"{{{header}}}".encode())
    with pytest.raises(DocumentProblem, match="more than 100000 tensors"):
        safetensors.read_header(io.BytesIO(data), len(data))


ODD = {
    "null metadata": framed({"__metadata__": None, "a": tensor()}, bytes(8)),
    "a surplus key": framed({"a": tensor(note="x")}, bytes(8)),
    "a scalar": framed({"a": tensor(shape=[], data_offsets=[0, 4])}, bytes(4)),
    "an empty tensor": framed({"a": tensor(shape=[0], data_offsets=[0, 0])}),
    "packed": framed({"a": tensor(dtype="F4", shape=[4], data_offsets=[0, 2])}, bytes(2)),
    "both float8": framed(
        {
            "a": tensor(dtype="F8_E4M3FNUZ", shape=[1], data_offsets=[0, 1]),
            "b": tensor(dtype="F8_E8M0", shape=[1], data_offsets=[1, 2]),
        },
        bytes(2),
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_what_the_reference_reader_accepts_is_accepted(case: str) -> None:
    assert facts_of(ODD[case]).problem is None
    assert reference(ODD[case])


@BOUNDED
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for candidate in (data, framed(data), framed(b"{" + data)):
        with suppress(DocumentProblem):
            assert facts_of(candidate).tensors == 0


@BOUNDED
@given(st.data())
def test_we_accept_nothing_that_the_reference_reader_refuses(data: st.DataObject) -> None:
    """One value of a right header becomes another; what we still take, the reader that loads the weights takes."""
    header = json.loads(json.dumps(GOOD))
    name = data.draw(st.sampled_from(["a", "b"]))
    key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
    numbers = st.integers(-1, 40) | st.booleans() | st.sampled_from([2**31, 2**63, 2**64, 1.5, None, "1"])
    header[name][key] = data.draw(
        st.sampled_from(["F4", "F16", "BF16", "I8", "f32", ""]) if key == "dtype" else st.lists(numbers, max_size=4)
    )
    file = framed(header, bytes(data.draw(st.integers(28, 36))))
    try:
        facts_of(file)
    except DocumentProblem:
        return
    try:
        reference(file)
    except SafetensorError as error:
        pytest.fail(f"the reference reader says {error}")
