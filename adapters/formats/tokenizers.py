"""What is kept of a `tokenizer.json`: that it can be read, which kind it is, and how many entries it has."""

from __future__ import annotations

import codecs
from typing import Any, Final

import msgspec

from adapters.formats.documents import DocumentProblem
from bus.text import clean_line

MAX_TOKENIZER_BYTES: Final = 32 * 1024 * 1024
# The largest vocabulary has 260,000 entries, of two values each where it is a list.
MAX_VOCABULARY_COMMAS: Final = 1_000_000
_MAX_TYPE_CHARS: Final = 64
_PIECE_BYTES: Final = 1024 * 1024
_NOTHING: Final = msgspec.Raw(b"[]")


class _Model(msgspec.Struct):
    """The tokenizer's model; its vocabulary is counted and not read."""

    type: str | None = None
    vocab: msgspec.Raw = _NOTHING


class _Tokenizer(msgspec.Struct):
    """Of a `tokenizer.json`, what is looked at; the rest is passed over without becoming objects."""

    model: _Model
    added_tokens: msgspec.Raw = _NOTHING


def reduced_tokenizer(data: bytes) -> dict[str, Any]:
    """`model_type`, `vocab_size` and `added_tokens` (how many); only `problem` when it is no tokenizer."""
    try:
        _check_utf_8(data)
        tokenizer = msgspec.json.decode(data, type=_Tokenizer)
        model_type = tokenizer.model.type
        return {
            "model_type": None if model_type is None else clean_line(model_type, _MAX_TYPE_CHARS),
            "vocab_size": _count(tokenizer.model.vocab),
            "added_tokens": _count(tokenizer.added_tokens),
        }
    except msgspec.ValidationError:
        return {"problem": "it describes no tokenizer: its model is absent or has another form"}
    except DocumentProblem as problem:
        return {"problem": str(problem)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"problem": "it is not valid UTF-8 JSON"}


def _check_utf_8(data: bytes) -> None:
    """What the decoder passes over it does not check. Piece by piece: the whole text would be four times as large."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for begin in range(0, len(data), _PIECE_BYTES):
        decoder.decode(data[begin : begin + _PIECE_BYTES])
    decoder.decode(b"", final=True)


def _count(part: msgspec.Raw) -> int:
    """How many entries a list or an object has; its commas are counted first, because entries become objects."""
    if bytes(part).count(b",") > MAX_VOCABULARY_COMMAS:
        raise DocumentProblem("its vocabulary is larger than any that is known")
    return len(msgspec.json.decode(part, type=dict[str, msgspec.Raw] | list[msgspec.Raw]))
