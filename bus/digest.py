"""Canonical JSON and SHA-256: the identity of sets, profiles, environments and fingerprints (spec A18, G4)."""

from __future__ import annotations

import hashlib
import json
from typing import Final

import msgspec

PREFIX: Final = "sha256:"


def canonical_json(value: object) -> bytes:
    """`value` as canonical JSON: keys sorted, no blanks, UTF-8, no NaN or infinity.

    Follows RFC 8785 (JSON Canonicalization Scheme) for the values that identities hold: objects with string keys,
    arrays, strings, integers and booleans. Floats are refused, because two languages print them differently.

    Raises:
        TypeError: for a float or an unsupported type.
    """
    builtins = msgspec.to_builtins(value)
    _refuse_floats(builtins)
    text = json.dumps(builtins, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _refuse_floats(value: object) -> None:
    if isinstance(value, float):
        message = "a float has no canonical form; use an integer with its unit in the name"
        raise TypeError(message)
    if isinstance(value, dict):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)


def sha256_hex(data: bytes) -> str:
    """SHA-256 of `data`, 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: object) -> str:
    """`sha256:<hex>` of the canonical JSON of `value`."""
    return PREFIX + sha256_hex(canonical_json(value))


def short(digest: str, length: int = 12) -> str:
    """The first `length` hex digits, for the screen only; never an identity."""
    return digest.removeprefix(PREFIX)[:length]
