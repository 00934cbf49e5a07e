"""Of a tokenizer's file only its kind and its size are kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.formats.tokenizers import MAX_TOKENIZER_BYTES, reduced_tokenizer

# For one example, on a machine that does other things too.
BOUNDED = settings(deadline=2_000)


def test_entries_are_counted() -> None:
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "[PAD]"}],
        "normalizer": {"type": "Sequence", "normalizers": [None]},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"], "a b"]},
    }
    assert reduced_tokenizer(json.dumps(tokenizer).encode()) == {
        "model_type": "BPE",
        "vocab_size": 2,
        "added_tokens": 1,
    }


def test_a_unigram_vocabulary_is_a_list() -> None:
    data = json.dumps({"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.5], ["b", -2]]}}).encode()
    assert reduced_tokenizer(data)["vocab_size"] == 3


def test_a_letter_may_lie_across_two_pieces() -> None:
    data = b'{"model": {}, "x": "' + b"a" * (2**20 - 21) + "\u20ac".encode() + b'"}'
    assert reduced_tokenizer(data)["vocab_size"] == 0


def test_the_kind_may_be_absent_and_is_cleaned() -> None:
    assert reduced_tokenizer(b'{"model": {"vocab": {}}}')["model_type"] is None
    assert reduced_tokenizer(b'{"model": {"type": "\\u001b[31mBPE"}}')["model_type"] == "BPE"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "no tokenizer"),
        (b"[]", "no tokenizer"),
        (b'{"model": null}', "no tokenizer"),
        (b'{"model": {"type": 1}}', "no tokenizer"),
        (b'{"model": {"vocab": 7}}', "no tokenizer"),
        (b'{"model": {}, "added_tokens": 1}', "no tokenizer"),
        (b"", "not valid"),
        (b'{"model": {"vocab": {"a": 0', "not valid"),
        (b"{broken", "not valid"),
        (b'{"model": {"type": "\xff"}}', "not valid"),
        (b'{"model": {}, "n\xefame": 1}', "not valid"),
        (b'{"model": {}, "x": ["\xef"]}', "not valid"),
        (b'{"model": {}, "x": "' + b"a" * (2**20 - 21) + "\u20ac".encode()[:2] + b'"}', "not valid"),
        (b'{"model": {}, "x": ' + b"[" * 1_000_000, "not valid"),
        (b'{"model": {"vocab": ' + b'{"a":' * 1_000_000, "not valid"),
    ],
)
def test_what_is_no_tokenizer_says_so(data: bytes, words: str) -> None:
    reduced = reduced_tokenizer(data)
    assert list(reduced) == ["problem"]
    assert words in reduced["problem"]


def test_the_largest_is_read_without_its_merges() -> None:
    merges = b'["aa","bb"],' * ((MAX_TOKENIZER_BYTES - 200) // 12)
    data = b'{"model":{"type":"BPE","vocab":{"a":0},"merges":[' + merges + b'["a","b"]]}}'
    assert reduced_tokenizer(data)["vocab_size"] == 1


@pytest.mark.parametrize("vocabulary", [b"[1%s]", b'{"a":[1%s]}'])
def test_a_vocabulary_larger_than_any_is_not_made_into_objects(vocabulary: bytes) -> None:
    data = b'{"model":{"vocab":' + vocabulary % (b",1" * 1_000_001) + b"}}"
    assert reduced_tokenizer(data) == {"problem": "its vocabulary is larger than any that is known"}


@BOUNDED
@given(st.binary(max_size=200))
def test_any_bytes_are_reduced(data: bytes) -> None:
    assert "problem" in reduced_tokenizer(data)
