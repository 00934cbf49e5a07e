"""Small JSON documents of strangers: bounded in size, depth and number of values, and cleaned."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.formats import documents
from adapters.formats.documents import DocumentProblem, parse_json, pruned

# For one example, on a machine that does other things too.
BOUNDED = settings(deadline=2_000)

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def test_brackets_in_texts_are_no_depth() -> None:
    assert parse_json(b'{"a": [1, "[[[[\\"[["]}') == {"a": [1, '[[[["[[']}
    assert parse_json(b"[" * 32 + b"]" * 32)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"NaN", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'"\xff"', "not valid UTF-8"),
        (b'{"a": 1', "not valid UTF-8"),
        (b"\xef\xbb\xbf{}", "not valid UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not valid UTF-8"),
        (b'{"a":1,"a":2}', "twice"),
        (b'{"a":{"b":1,"b":2}}', "twice"),
        (b"[" * 33 + b"]" * 33, "deeper"),
        (b"[" * 100_000, "deeper"),
        (b'{"a":' * 100_000, "deeper"),
        (b"1" * 5_000, "not valid UTF-8"),
        (b" " * (documents.MAX_DOCUMENT_BYTES + 1), "larger"),
    ],
)
def test_each_rule_is_named(data: bytes, words: str) -> None:
    with pytest.raises(DocumentProblem, match=words):
        parse_json(data)


@pytest.mark.parametrize("piece", [b"0,", b"[],", b'"",', b'""'])
def test_more_values_than_memory_is_for_are_not_parsed(piece: bytes) -> None:
    data = b"[" + piece * (documents.MAX_VALUES + 1) + b"0]"
    with pytest.raises(DocumentProblem, match="more than 2000000 values"):
        parse_json(data, max_bytes=len(data))


def test_a_text_without_an_end_is_refused_in_one_pass() -> None:
    """Searched again from each of its quotes, a megabyte of them would take hours, and this test its 60 s."""
    data = b'"' + b'\\"' * (documents.MAX_DOCUMENT_BYTES // 2 - 1)
    with pytest.raises(DocumentProblem, match="not valid UTF-8"):
        parse_json(data)


@BOUNDED
@given(_VALUES)
def test_what_json_can_say_is_read_as_json_reads_it(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@BOUNDED
@given(st.binary(max_size=300))
def test_any_bytes_are_a_document_or_a_problem(data: bytes) -> None:
    with suppress(DocumentProblem):
        parse_json(data)


@BOUNDED
@given(_VALUES)
def test_what_is_kept_is_bounded_and_clean(value: Any) -> None:
    text = json.dumps(pruned(value))
    assert "\\u001b" not in text


def test_lists_texts_numbers_and_depth_are_cut() -> None:
    deep: Any = "end"
    for _ in range(documents.MAX_DEPTH + 5):
        deep = [deep]
    kept = pruned(
        {
            "long": ["x"] * 10_000,
            "id2label": {str(number): "x" for number in range(1_000)},
            "text": "y" * 1_000,
            "number": 2**70,
            "deep": deep,
            "esc": "\x1b[31mred",
        }
    )

    assert len(kept["long"]) == documents.MAX_KEPT_ITEMS
    assert len(kept["id2label"]) == documents.MAX_BULK_ITEMS
    assert len(kept["text"]) == documents.MAX_KEPT_CHARS
    assert kept["number"] == str(2**70)
    assert kept["esc"] == "red"
    assert "end" not in json.dumps(kept["deep"])


@pytest.mark.parametrize(
    ("document", "cut"),
    [
        ({"a": 1, "b": [1] * 300}, False),
        ({"id2label": {str(number): "x" for number in range(10_000)}}, False),
        ({str(number): 0 for number in range(documents.MAX_KEPT_ITEMS + 1)}, True),
        ({"text_config": {str(number): 0 for number in range(documents.MAX_KEPT_ITEMS + 1)}}, True),
        ([{"a": [0] * (documents.MAX_KEPT_ITEMS + 1)}], True),
        ({"auto_map": 1, "auto_map\x07": 2}, True),
        ({"chat_template": "{% if a %}\r\n\tb\n" * 100}, False),
        ({"pad_token": "\n", "unk_token": "\t"}, False),
        ({"quant_method": "gp\x1b[0mtq"}, True),
        ([{"prompts": ["a\x07"]}], True),
        ({"a": "one\u200btwo"}, True),
        ({"path": "1_Pool\ning"}, True),
        ([{"type": "x" * (documents.MAX_KEPT_CHARS + 1)}], True),
        ({"id2label": {"0": "a\x07"}}, False),
    ],
)
def test_a_document_that_lost_what_may_decide_is_known_as_cut(document: Any, cut: bool) -> None:
    assert documents.is_cut(document) is cut


def test_a_key_that_only_looks_like_another_never_takes_its_place() -> None:
    assert pruned({"auto_map": "real", "auto_map\x07": None})["auto_map"] == "real"
    assert pruned({"auto_map\x07": None, "auto_map": "real"})["auto_map"] == "real"
