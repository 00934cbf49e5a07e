"""What all messages have in common.

A message is frozen and keyword-only (msgspec does not inherit `kw_only`, so each class repeats it). Its `kind` carries
a version; a new field has a default; unknown fields are ignored on the wire; sizes are bytes, times are RFC 3339 UTC,
durations carry their unit in the name.

What a stranger may send is bounded here, at the decoder: an integer that SQLite cannot hold, or a megabyte where a name
belongs, is a malformed message and not a fault somewhere behind it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

_MAX_INTEGER: Final = 2**63 - 1
MAX_LINE_CHARS: Final = 2_000

Integer = Annotated[int, msgspec.Meta(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INTEGER)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_MAX_INTEGER)]
# An id, a boot or a name as somebody else writes it: one token of printable ASCII.
Token = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,128}\Z")]
# One line of foreign text; it is cleaned where it is taken in.
Line = Annotated[str, msgspec.Meta(max_length=MAX_LINE_CHARS)]
Facts = Annotated[dict[Line, Line], msgspec.Meta(max_length=128)]

# A time without a zone would be compared with ours as if it were UTC, or not at all: it is malformed.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message: typed, without a kind of its own."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A whole message; each subclass names its kind, such as `probe.job.v1`."""
