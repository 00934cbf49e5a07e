"""TOML that is written to be read back: what has no value is left out, and nothing in it can drive a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tomli_w

_TWO_BYTES_MAX: Final = 0xFFFF


def render(document: Mapping[str, Any]) -> str:
    """`document` as TOML; `None` is left out, at any depth.

    Characters that a terminal obeys or that nobody sees are written as escapes, which every TOML reader undoes.
    """
    written = tomli_w.dumps(_without_none(document))
    return "".join(_shown(character) for character in written)


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_none(inner) for inner in value]
    return value


def _shown(character: str) -> str:
    # tomli-w writes basic strings only, and escapes what is below a blank itself.
    if character.isprintable() or character == "\n":
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= _TWO_BYTES_MAX else f"\\U{number:08x}"
