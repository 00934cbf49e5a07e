"""A set as one message can hold it: what is too much is left out, whole kinds first, and each cut is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from bus.codec import encode
from bus.messages.artifacts import ArtifactSet, SetEvidence
from bus.messages.blobs import MAX_INLINE_BYTES

MAX_QUARANTINES: Final = 200
MAX_LOCATIONS: Final = 200
# What of a kind is kept when not all of it fits.
KEPT_PICKLES: Final = 50
KEPT_WEIGHTS: Final = 100
KEPT_IMPORTS: Final = 20


def fitting(found: ArtifactSet, max_bytes: int) -> ArtifactSet:
    """The set without its manifest where that is long, and with as much of its evidence as `max_bytes` hold.

    The members are had page by page with `artifacts.files`. A note of the evidence says what was left out here; what
    is stored stays whole, and assessments look at that.
    """
    shown = replace(found, quarantined=found.quarantined[:MAX_QUARANTINES], locations=found.locations[:MAX_LOCATIONS])
    notes: list[str] = []
    if len(found.quarantined) > MAX_QUARANTINES:
        notes.append(f"left out of this reply: {len(found.quarantined) - MAX_QUARANTINES} more quarantined members")
    if found.manifest is not None and len(encode(found.manifest)) > MAX_INLINE_BYTES:
        shown = replace(shown, manifest=None)
    evidence = found.evidence
    if evidence is None:
        return shown
    for cut in _CUTS:
        shown = replace(shown, evidence=replace(evidence, notes=(*evidence.notes, *notes)))
        if len(encode(shown)) <= max_bytes:
            return shown
        evidence, said = cut(evidence)
        if said:
            notes.append(f"left out of this reply: {said}")
    return replace(shown, evidence=replace(evidence, notes=tuple(notes)))


def _without_formats(evidence: SetEvidence) -> tuple[SetEvidence, str]:
    return replace(evidence, formats={}), _count(len(evidence.formats), "formats of members")


def _few_pickles(evidence: SetEvidence) -> tuple[SetEvidence, str]:
    """The dangerous ones stay the longest."""
    worst = sorted(evidence.pickles, key=lambda facts: facts.verdict not in {"code", "unreadable"})[:KEPT_PICKLES]
    kept = tuple(replace(facts, imports=facts.imports[:KEPT_IMPORTS]) for facts in worst)
    return replace(evidence, pickles=kept), _count(
        len(evidence.pickles) - len(kept), "pickles", "and long lists in others"
    )


def _few_weights(evidence: SetEvidence) -> tuple[SetEvidence, str]:
    kept = evidence.weights[:KEPT_WEIGHTS]
    return replace(evidence, weights=kept), _count(len(evidence.weights) - len(kept), "headers of weight files")


def _without_documents(evidence: SetEvidence) -> tuple[SetEvidence, str]:
    return replace(evidence, documents={}), _count(len(evidence.documents), "documents")


def _without_weights(evidence: SetEvidence) -> tuple[SetEvidence, str]:
    weights, pickles = len(evidence.weights), len(evidence.pickles)
    return replace(evidence, weights=(), pickles=()), _count(weights + pickles, "headers and pickles")


def _count(left_out: int, what: str, more: str = "") -> str:
    words = f"{left_out} {what}" if left_out > 0 else ""
    return " ".join(word for word in (words, more) if word)


_CUTS: Final[tuple[Callable[[SetEvidence], tuple[SetEvidence, str]], ...]] = (
    _without_formats,
    _few_pickles,
    _few_weights,
    _without_documents,
    _without_weights,
)
