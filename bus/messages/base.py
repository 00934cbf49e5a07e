"""What all messages have in common.

A message is frozen and keyword-only (msgspec does not inherit `kw_only`, so each class repeats it). Its `kind` carries a version; a new field has a default; unknown fields are
ignored on the wire; sizes are bytes, times are RFC 3339 UTC, durations carry their unit in the name.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

# A time without a zone would be compared with ours as if it were UTC, or not at all: it is malformed.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message: typed, without a kind of its own."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A whole message; each subclass names its kind, such as `probe.job.v1`."""
