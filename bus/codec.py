"""Bytes to messages and back. JSON, so that the `nats` command line can read everything."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, TypeVar, overload

import msgspec

from bus.errors import ErrorCode, ModelForgeError

T = TypeVar("T")
_encoder = msgspec.json.Encoder(order="deterministic")


def encode(message: object) -> bytes:
    """One message as compact UTF-8 JSON, fields in the declared order."""
    return _encoder.encode(message)


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


@overload
def decode(data: bytes, type_: type[T]) -> T: ...
@overload
def decode(data: bytes, type_: UnionType) -> Any: ...
def decode(data: bytes, type_: Any) -> Any:
    """Decode `data` as `type_` (a Struct, or a union of tagged Structs).

    Raises:
        ModelForgeError: UNKNOWN_KIND when the tag names no member of the union, MALFORMED_MESSAGE otherwise. The
            message never quotes the payload: it may hold an input.
    """
    try:
        return _decoder(type_).decode(data)
    except msgspec.ValidationError as error:
        code = ErrorCode.UNKNOWN_KIND if "Invalid value" in str(error) and "`$.kind`" in str(error) else None
        raise ModelForgeError(code or ErrorCode.MALFORMED_MESSAGE, f"not a valid message: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, f"not valid JSON: {error}") from error
