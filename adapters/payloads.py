"""The fixed inputs of probes, and how an answer becomes evidence.

An input leaves this module as its SHA-256 only (spec P2): no message, no log and no row ever holds the text.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from typing import Final

from bus.digest import sha256_hex
from bus.messages.evidence import Output

EMBEDDING_INPUT: Final = "ModelForge runtime compatibility probe"
EMBEDDING_INPUT_SHA256: Final = sha256_hex(EMBEDDING_INPUT.encode())
SHOWN_VALUES: Final = 8
# Two runs in one process on one device give the same bits; a card may add in another order.
REPEAT_COSINE: Final = 0.9999


def mask_inputs(text: str) -> str:
    """`text` without the fixed inputs, for logs: a library may quote what it was given."""
    return text.replace(EMBEDDING_INPUT, "[probe input]")


def embedding_output(first: Sequence[float], second: Sequence[float], dtype: str) -> Output:
    """The evidence of one vector and its repetition.

    Args:
        first: the vector, shape (dimensions,), as the adapter returned it.
        second: the vector of the same input run again.
        dtype: the type in which the model returned it, such as `float32`.

    Returns:
        The output: digest of the vector as little-endian float32, its Euclidean norm and its first values. JSON
        has no NaN and no infinity, so a value that is not finite is shown as 0 with `finite` false.
    """
    finite = all(math.isfinite(value) for value in first)
    return Output(
        input_sha256=EMBEDDING_INPUT_SHA256,
        vector_length=len(first),
        vector_sha256=sha256_hex(float32_bytes(first)),
        norm=_json_number(math.sqrt(sum(value * value for value in first))),
        first_values=tuple(_json_number(value) for value in first[:SHOWN_VALUES]),
        dtype=dtype,
        finite=finite,
        repeat_identical=float32_bytes(first) == float32_bytes(second),
    )


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Cosine of the angle between two vectors of one length; 0 when either has no direction or is not finite."""
    lengths = math.sqrt(sum(value * value for value in first)) * math.sqrt(sum(value * value for value in second))
    if len(first) != len(second) or not math.isfinite(lengths) or lengths == 0.0:
        return 0.0
    return sum(a * b for a, b in zip(first, second, strict=True)) / lengths


def float32_bytes(vector: Sequence[float]) -> bytes:
    """The vector as little-endian float32, the form that is hashed."""
    packed = array("f", vector)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _json_number(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0
