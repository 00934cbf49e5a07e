"""Parts of the evidence, cleaned for screens and cut to the bounds: another machine, or a foreign file, wrote them."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from adapters.formats.documents import pruned
from bus.messages.artifacts import Opinion, PickleFacts, WeightFacts
from bus.text import clean_line

MAX_IMPORTS: Final = 64
MAX_OPINIONS: Final = 8
_MAX_DTYPES: Final = 32
_MAX_METADATA: Final = 32
MAX_CHARS: Final = 256


def clean_weights(facts: WeightFacts) -> WeightFacts:
    """The facts of one weight file; their size is bounded by the number of entries."""
    return replace(
        facts,
        problem=None if facts.problem is None else str(pruned(facts.problem)),
        bytes_by_dtype={
            clean_line(dtype, MAX_CHARS): size for dtype, size in list(facts.bytes_by_dtype.items())[:_MAX_DTYPES]
        },
        metadata={
            clean_line(key, MAX_CHARS): clean_line(value, MAX_CHARS)
            for key, value in list(facts.metadata.items())[:_MAX_METADATA]
        },
    )


def clean_pickle(facts: PickleFacts) -> PickleFacts:
    """The facts of one pickle, cleaned for screens and cut to the bounds."""
    return replace(
        facts,
        member=clean_line(facts.member, MAX_CHARS),
        reason=clean_line(facts.reason, MAX_CHARS),
        imports=tuple(clean_line(name, MAX_CHARS) for name in facts.imports[:MAX_IMPORTS]),
        opinions=tuple(_opinion(opinion) for opinion in facts.opinions[:MAX_OPINIONS]),
    )


def _opinion(opinion: Opinion) -> Opinion:
    return replace(
        opinion,
        tool=clean_line(opinion.tool, MAX_CHARS),
        version=clean_line(opinion.version, MAX_CHARS),
        detail=clean_line(opinion.detail, MAX_CHARS),
    )
