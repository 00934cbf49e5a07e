"""Small JSON documents of a model folder: bounded in size, depth and length, cleaned for screens.

They are written by strangers and shown where an approval is given, so nothing of them gets in unbounded or with
terminal control in it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from bus.text import clean_line

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 32
MAX_KEPT_ITEMS: Final = 256
MAX_KEPT_CHARS: Final = 512
# What a document may hold at all: as Python objects, values are a hundred times as large as their commas.
MAX_VALUES: Final = 2_000_000
# Without backtracking, and a string without its end is one too: a search that starts again at each quote would take
# hours for one MiB of them.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))


class DocumentProblem(ValueError):  # noqa: N818 -- it is a finding about a foreign file, not an error of the product
    """What is wrong with a foreign file, in words that quote nothing of it at length."""


def parse_json(data: bytes, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> Any:
    """JSON of at most `max_bytes` and `MAX_DEPTH` levels; no NaN, no infinity, no name twice in one object.

    Raises:
        DocumentProblem: naming the rule that was broken.
    """
    if len(data) > max_bytes:
        raise DocumentProblem(f"it is larger than {max_bytes} bytes")
    if _values(data) > MAX_VALUES:
        raise DocumentProblem(f"it holds more than {MAX_VALUES} values")
    _check_depth(data)
    try:
        # Decoded here: `loads` would guess UTF-16 and UTF-32 too, which no loader of a model reads.
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except DocumentProblem:
        raise
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DocumentProblem("it is not valid UTF-8 JSON") from error


def _values(data: bytes) -> int:
    """At least the number of values, names and strings of a document, without parsing it."""
    return max(data.count(b",") + data.count(b"[") + data.count(b"{"), data.count(b'"') // 2)


def _check_depth(data: bytes) -> None:
    """Count brackets before parsing: a deep document would end the parser by its recursion limit."""
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NO_BRACKET):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise DocumentProblem(f"it is nested deeper than {MAX_DEPTH} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise DocumentProblem("it names one key twice")
    return result


def _constant(name: str) -> Any:
    raise DocumentProblem(f"it holds {name}, which is no JSON number")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise DocumentProblem("it holds a number that is too large")
    return number


def pruned(value: Any, max_items: int = MAX_KEPT_ITEMS, *, depth: int = MAX_DEPTH) -> Any:
    """`value` cleaned and cut for keeping: texts to `MAX_KEPT_CHARS`, lists and objects to `max_items`, deep ones away."""
    if isinstance(value, str):
        return clean_line(value, MAX_KEPT_CHARS)
    if isinstance(value, dict | list) and depth <= 0:
        # Only what another machine sent can be as deep: `parse_json` refuses it.
        return None
    if isinstance(value, dict):
        kept = list(value.items())[:max_items]
        return {clean_line(str(key), MAX_KEPT_CHARS): pruned(item, max_items, depth=depth - 1) for key, item in kept}
    if isinstance(value, list):
        return [pruned(item, max_items, depth=depth - 1) for item in value[:max_items]]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # msgspec and SQLite end at 64 bits; a number beyond is kept as its text.
        return clean_line(str(value)[:MAX_KEPT_CHARS], MAX_KEPT_CHARS)
    return value
