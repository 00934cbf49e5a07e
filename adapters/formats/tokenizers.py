"""What is kept of a `tokenizer.json`: that it can be read, which kind it is, and how many entries it has."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bus.text import clean_line

MAX_TOKENIZER_BYTES: Final = 32 * 1024 * 1024
_MAX_TYPE_CHARS: Final = 64


class _Model(msgspec.Struct):
    """The tokenizer's model; its vocabulary is counted and not read."""

    type: str | None = None
    vocab: dict[str, msgspec.Raw] | list[msgspec.Raw] = []


class _Tokenizer(msgspec.Struct):
    """Of a `tokenizer.json`, what is looked at; the rest is passed over without becoming objects."""

    model: _Model
    added_tokens: list[msgspec.Raw] = []


def reduced_tokenizer(data: bytes) -> dict[str, Any]:
    """`model_type`, `vocab_size` and `added_tokens` (how many); only `problem` when it is no tokenizer."""
    try:
        tokenizer = msgspec.json.decode(data, type=_Tokenizer)
    except msgspec.ValidationError:
        return {"problem": "it describes no tokenizer: its model is absent or has another form"}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"problem": "it is not valid UTF-8 JSON"}
    model_type = tokenizer.model.type
    return {
        "model_type": None if model_type is None else clean_line(model_type, _MAX_TYPE_CHARS),
        "vocab_size": len(tokenizer.model.vocab),
        "added_tokens": len(tokenizer.added_tokens),
    }
