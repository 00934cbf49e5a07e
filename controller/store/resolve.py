"""From what an operator types to exactly one id: a whole id, or a beginning that only one thing has."""

from __future__ import annotations

import re
from typing import Final

from bus import digest
from bus.errors import ErrorCode, ModelForgeError
from bus.text import clean_line
from controller.store.tx import Tx

MIN_DIGEST_CHARS: Final = 6
MAX_TYPED_CHARS: Final = 100
_SHOWN: Final = 5
_HEX: Final = re.compile(r"[0-9a-f]{1,64}\Z")
_ID_PART: Final = re.compile(r"[0-9a-z]{1,10}\Z")
# Above every character that an id may hold, so that BETWEEN covers all that begin with the text.
_LAST: Final = "~"


def by_digest(tx: Tx, query: str, typed: str, what: str) -> str:
    """The digest that begins with `typed`, which may leave out `sha256:` but not the first six hex digits.

    Raises:
        ModelForgeError: UNKNOWN_ID, or AMBIGUOUS_ID (several begin so, or too few digits to tell).
    """
    hexes = typed.strip().lower().removeprefix(digest.PREFIX)
    if _HEX.match(hexes) is None:
        raise _unknown(what, typed)
    if len(hexes) < MIN_DIGEST_CHARS:
        message = f"{clean_line(typed, MAX_TYPED_CHARS)!r} is too short for a digest: type at least 6 hex digits"
        raise ModelForgeError(ErrorCode.AMBIGUOUS_ID, message)
    return _only(tx, query, digest.PREFIX + hexes, what, typed)


def by_id(tx: Tx, query: str, typed: str, prefix: str, what: str) -> str:
    """The id that begins with `typed`; the prefix (`prb-`) may be left out.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    part = typed.strip().lower().removeprefix(f"{prefix}-")
    if _ID_PART.match(part) is None:
        raise _unknown(what, typed)
    return _only(tx, query, f"{prefix}-{part}", what, typed)


def audited(tx: Tx, typed: str) -> str:
    """The id of anything in the audit trail: exact, or the beginning of an id, digest or name.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    text = typed.strip()[:MAX_TYPED_CHARS]
    beginnings = [text]
    if len(text) >= MIN_DIGEST_CHARS and _HEX.match(text) is not None:
        beginnings.append(digest.PREFIX + text)
    found = {
        row["id"]
        for begin in beginnings
        if begin
        for row in tx.all("audit.resolve", low=begin, high=begin + _LAST, limit=_SHOWN + 1)
    }
    return text if text in found else _single(sorted(found), "entry of the audit trail", typed)


def _only(tx: Tx, query: str, begin: str, what: str, typed: str) -> str:
    rows = tx.all(query, low=begin, high=begin + _LAST, limit=_SHOWN + 1)
    return _single([row["id"] for row in rows], what, typed)


def _single(found: list[str], what: str, typed: str) -> str:
    if not found:
        raise _unknown(what, typed)
    if len(found) > 1:
        names = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
        message = f"several begin with {clean_line(typed, MAX_TYPED_CHARS)!r}: {names}"
        raise ModelForgeError(ErrorCode.AMBIGUOUS_ID, message)
    return found[0]


def _unknown(what: str, typed: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no {what} {clean_line(typed, MAX_TYPED_CHARS)!r}")
