"""Between Python values and the ledger's columns: times as text whose order is time order, records as JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError

Row = sqlite3.Row
T = TypeVar("T")


def time_text(moment: datetime) -> str:
    """RFC 3339 UTC with six decimals always, so that comparing texts compares moments."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time_of(text: str) -> datetime:
    """The moment of a column."""
    return datetime.fromisoformat(text)


def optional_time(text: str | None) -> datetime | None:
    """The moment of a column that may be NULL."""
    return None if text is None else time_of(text)


def json_text(value: object) -> str:
    """A record as JSON text."""
    return encode(value).decode()


def from_json(text: str, type_: type[T]) -> T:
    """A record from JSON text of the ledger.

    Raises:
        ModelForgeError: STORE_SCHEMA_MISMATCH when the ledger holds what this version cannot read.
    """
    try:
        return decode(text.encode(), type_)
    except ModelForgeError as error:
        message = f"the ledger holds a record that is no {type_}: {error.message}"
        raise ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, message) from error


def optional_json(text: str | None, type_: type[T]) -> T | None:
    """A record that may be NULL."""
    return None if text is None else from_json(text, type_)


def bind(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as SQLite takes them: moments become text."""
    return {name: time_text(value) if isinstance(value, datetime) else value for name, value in parameters.items()}
