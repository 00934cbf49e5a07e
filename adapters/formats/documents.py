"""Small JSON documents of a model folder: bounded in size, depth and length, cleaned for screens.

They are written by strangers and shown where an approval is given, so nothing of them gets in unbounded or with
terminal control in it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from bus.text import clean_line, clean_text

MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 32
MAX_KEPT_ITEMS: Final = 4_096
MAX_BULK_ITEMS: Final = 256
# Tables of labels and tokens: no rule asks for one of their entries, so they may be cut without a word.
BULK_KEYS: Final = frozenset(
    {
        "added_tokens_decoder",
        "additional_special_tokens",
        "alignment_heads",
        "extra_special_tokens",
        "id2label",
        "label2id",
        "lang_to_id",
        "suppress_tokens",
        "begin_suppress_tokens",
        "trained_betas",
    }
)
# Names that a rule or a loader compares whole: a text that is cut or cleaned would be taken for another.
NAME_KEYS: Final = frozenset({"model_type", "name", "path", "type"})
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
    """`value` cleaned and cut for keeping: texts to `MAX_KEPT_CHARS`, lists and objects to `max_items`, deep ones away.

    What stands under one of `BULK_KEYS` is cut to `MAX_BULK_ITEMS`. Whether anything else was lost says `is_cut`.
    """
    if isinstance(value, str):
        return clean_line(value, MAX_KEPT_CHARS)
    if isinstance(value, dict | list) and depth <= 0:
        # Only what another machine sent can be as deep: `parse_json` refuses it.
        return None
    if isinstance(value, dict):
        return _pruned_object(value, max_items, depth)
    if isinstance(value, list):
        return [pruned(item, max_items, depth=depth - 1) for item in value[:max_items]]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # msgspec and SQLite end at 64 bits; a number beyond is kept as its text.
        return clean_line(str(value)[:MAX_KEPT_CHARS], MAX_KEPT_CHARS)
    return value


def _pruned_object(value: dict[str, Any], max_items: int, depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, item in list(value.items())[:max_items]:
        name = clean_line(str(key), MAX_KEPT_CHARS)
        if name == key or name not in value:
            # Else a key with a control character in it would take the place of the one that the runtime reads.
            inner = min(max_items, MAX_BULK_ITEMS) if name in BULK_KEYS else max_items
            kept[name] = pruned(item, inner, depth=depth - 1)
    return kept


def is_cut(value: Any) -> bool:
    """Does `pruned` lose an item of this document that a rule may ask for, or a text that only looks like another?

    Long texts and their line breaks may go, as in a template of a chat; not in a name, and no control characters.
    """
    if isinstance(value, str):
        return clean_text(value, len(value)) != value.replace("\r\n", "\n")
    if isinstance(value, dict):
        names = [*value, *(value[key] for key in NAME_KEYS if isinstance(value.get(key), str))]
        if len(value) > MAX_KEPT_ITEMS or any(clean_line(name, MAX_KEPT_CHARS) != name for name in names):
            return True
        return any(is_cut(item) for key, item in value.items() if key not in BULK_KEYS)
    if isinstance(value, list):
        return len(value) > MAX_KEPT_ITEMS or any(is_cut(item) for item in value)
    return False
