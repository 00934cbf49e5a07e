"""The parsers of foreign files are bounded, read no weights, and say what is wrong instead of raising."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.formats import documents, safetensors
from adapters.formats.documents import DocumentProblem, parse_json, pruned
from adapters.formats.evidence import MAX_EVIDENCE_BYTES, EvidenceCollector, weight_facts


class CountingFile(io.BytesIO):
    """Remembers how far it was read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def file_of(header: Any, data_bytes: int) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data_bytes)


GOOD = {
    "__metadata__": {"format": "pt"},
    "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "a": {"dtype": "F16", "shape": [4], "data_offsets": [24, 32]},
}


def test_a_header_gives_counts_without_reading_weights() -> None:
    data = file_of(GOOD, 32)
    file = CountingFile(data)
    facts = safetensors.weight_facts("model.safetensors", file, len(data))
    assert facts.problem is None
    assert (facts.tensors, facts.parameters) == (2, 10)
    assert facts.bytes_by_dtype == {"F16": 8, "F32": 24}
    assert file.read_bytes == len(data) - 32


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "shorter"),
        (struct.pack("<Q", 2**62) + b"{}", "claims"),
        (struct.pack("<Q", 100) + b"{}", "ends inside"),
        (file_of(b"[]", 0), "not a JSON object"),
        (file_of(b"{nonsense", 0), "not valid"),
        (file_of(GOOD, 31), "31"),
        (file_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12), "gap"),
        (file_of({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, 8), "unknown dtype"),
        (file_of({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, 8), "impossible shape"),
        (file_of({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, 8), "do not match"),
        (file_of({"a": {"dtype": "F32"}}, 8), "no dtype"),
        (file_of(b'{"a": 1, "a": 2}', 0), "twice"),
        (file_of(b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}", 0), "deeper"),
    ],
)
def test_a_lying_header_is_a_problem_not_an_exception(data: bytes, words: str) -> None:
    facts = safetensors.weight_facts("model.safetensors", io.BytesIO(data), len(data))
    assert facts.problem is not None
    assert words in facts.problem


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    framed = struct.pack("<Q", len(data)) + data
    for candidate in (data, framed):
        facts = safetensors.weight_facts("x.safetensors", io.BytesIO(candidate), len(candidate))
        assert facts.problem is not None or facts.tensors == 0


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=4)))
def test_what_is_kept_is_bounded_and_clean(value: Any) -> None:
    text = json.dumps(pruned(value))
    assert "\\u001b" not in text


def test_json_rules() -> None:
    assert parse_json(b'{"a": [1, "[[[["]}') == {"a": [1, "[[[["]}
    for bad in (b"NaN", b"\xff", b'{"a":1,"a":2}', b"[" * 33 + b"]" * 33, b" " * (documents.MAX_DOCUMENT_BYTES + 1)):
        with pytest.raises(DocumentProblem):
            parse_json(bad)


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("pytorch_model.bin", b"PK\x03\x04....", "pickle"),
        ("weights.weird", b"\x80\x04....", "pickle"),
        ("pytorch_model.bin", b"hello", "unknown"),
        ("model.gguf", struct.pack("<4sIQQ", b"GGUF", 3, 7, 1), "gguf"),
        ("vocab.txt", b"[PAD]", None),
    ],
)
def test_formats_are_told_by_their_first_bytes(path: str, data: bytes, expected: str | None) -> None:
    facts = weight_facts(path, io.BytesIO(data), len(data))
    assert (facts.format if facts else None) == expected


def test_the_collector_keeps_documents_headers_and_shard_names() -> None:
    collector = EvidenceCollector()
    index = json.dumps({"weight_map": {f"t{i}": f"model-{i % 2}.safetensors" for i in range(1_000)}}).encode()
    members = {
        "config.json": b'{"model_type": "bert\\u001b[31m", "eps": 1e-12}',
        "1_Pooling/config.json": b"{broken",
        "model.safetensors.index.json": index,
        "model.safetensors": file_of(GOOD, 32),
        "tokenizer.json": b"{}",
    }
    for path, data in members.items():
        collector.add(path, io.BytesIO(data), len(data))
    evidence = collector.result()
    assert evidence.documents["config.json"]["model_type"] == "bert"
    assert evidence.documents["model.safetensors.index.json"] == {
        "files": ["model-0.safetensors", "model-1.safetensors"],
        "tensors": 1_000,
    }
    assert [facts.path for facts in evidence.weights] == ["model.safetensors"]
    assert evidence.notes == ("1_Pooling/config.json: not read, it is not valid UTF-8 JSON",)


def test_the_evidence_of_a_set_fits_one_message() -> None:
    collector = EvidenceCollector()
    document = json.dumps({f"key{i}": "x" * 500 for i in range(250)}).encode()
    for number in range(20):
        collector.add(f"{number}/config.json", io.BytesIO(document), len(document))
    evidence = collector.result()
    assert 0 < len(evidence.documents) < 20
    assert len(evidence.notes) == 20 - len(evidence.documents)
    assert sum(len(json.dumps(d)) for d in evidence.documents.values()) < MAX_EVIDENCE_BYTES * 1.1
