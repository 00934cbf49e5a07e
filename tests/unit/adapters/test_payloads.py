from __future__ import annotations

import hashlib
import math

import pytest

from adapters import payloads
from bus import proof
from bus.codec import decode, encode
from bus.messages.evidence import Output


@pytest.mark.req("P2")
def test_the_sole_input_is_the_specified_one() -> None:
    digest = hashlib.sha256(b"ModelForge runtime compatibility probe").hexdigest()
    assert digest == payloads.EMBEDDING_INPUT_SHA256 == proof.EMBEDDING_INPUT_SHA256


@pytest.mark.req("P2")
def test_an_output_carries_the_hash_and_never_the_text() -> None:
    output = payloads.embedding_output([0.6, 0.8], [0.6, 0.8], "float32")
    assert output.input_sha256 == payloads.EMBEDDING_INPUT_SHA256
    assert payloads.EMBEDDING_INPUT.encode() not in encode(output)
    assert (output.vector_length, output.finite, output.repeat_identical) == (2, True, True)
    assert output.norm == pytest.approx(1.0)
    assert output.first_values == (0.6, 0.8)


def test_the_digest_is_of_little_endian_float32() -> None:
    expected = hashlib.sha256(bytes.fromhex("0000803f000000c0")).hexdigest()
    assert payloads.embedding_output([1.0, -2.0], [], "float32").vector_sha256 == expected


@pytest.mark.req("P13")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_survive_json(bad: float) -> None:
    output = payloads.embedding_output([bad, 1.0], [bad, 1.0], "float32")
    assert not output.finite
    assert decode(encode(output), Output) == output


def test_at_most_eight_values_are_shown() -> None:
    assert len(payloads.embedding_output([0.5] * 384, [0.5] * 384, "float32").first_values) == 8


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 0.0], [2.0, 0.0], 1.0),
        ([1.0, 0.0], [0.0, 1.0], 0.0),
        ([1.0], [-1.0], -1.0),
        ([0.0], [1.0], 0.0),
        ([1.0], [1.0, 1.0], 0.0),
        ([math.nan], [1.0], 0.0),
    ],
)
def test_cosine(first: list[float], second: list[float], expected: float) -> None:
    assert payloads.cosine(first, second) == pytest.approx(expected)
