"""What a node says of itself and of its measurements, as it may be stored: no terminal control, no credentials.

Text is cleaned where it enters the product, once and for every field: whoever shows it later need not think of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

import msgspec

from bus.messages.base import MAX_LINE_CHARS
from bus.text import clean_line, redact

T = TypeVar("T", bound=msgspec.Struct)


def cleaned(record: T) -> T:
    """The record with every text, also those of its parts, on one clean line of at most `MAX_LINE_CHARS`.

    Text that is clean already stays as it is, so the digests of honest records do not move.
    """
    plain = msgspec.to_builtins(record, builtin_types=(datetime,))
    return msgspec.convert(_clean(plain), type(record))


def _clean(value: object) -> object:
    match value:
        case str():
            return redact(clean_line(value, MAX_LINE_CHARS))[:MAX_LINE_CHARS]
        case dict():
            return {_clean(key): _clean(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_clean(entry) for entry in value]
    return value
