"""What no longer holds, on the screen: equal causes together, and what a newer assessment replaced folded into a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelforge import format as text
from modelforge.cli.names import versioned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bus.messages.gates import Assessment

_COLUMNS: Final = 80
_INDENT: Final = "  "


def question(one: Assessment) -> tuple[str, str, str]:
    """What an assessment answers: this set, under these contents of a profile, on this node."""
    return one.set_digest, one.profile_id, one.node


def open_ones(stale: Iterable[Assessment], known: Iterable[Assessment]) -> list[Assessment]:
    """Those of `stale` whose question no assessment in `known` answers that is newer and holds."""
    current: dict[tuple[str, str, str], Assessment] = {}
    for one in known:
        before = current.get(question(one))
        if not one.stale_because and (before is None or one.created_at > before.created_at):
            current[question(one)] = one
    return [one for one in stale if (newer := current.get(question(one))) is None or newer.created_at <= one.created_at]


def stale_text(shown: Sequence[Assessment], *, replaced: int = 0) -> str:
    """A block for each cause: what it made stale, and each fact that changed. `replaced` others are only counted."""
    causes: dict[tuple[str, ...], list[Assessment]] = {}
    for one in shown:
        causes.setdefault(one.stale_because, []).append(one)
    blocks = ["\n".join(_block(because, ones)) for because, ones in causes.items()]
    if replaced and not shown:
        number = text.count(replaced, "older one")
        blocks.append(f"every stale assessment was made again: newer assessments replaced {number}")
    elif replaced:
        blocks.append(f"and {text.count(replaced, 'older one')} that newer assessments replaced")
    return "\n\n".join(blocks) or "no assessment is stale"


def _block(because: Sequence[str], ones: Sequence[Assessment]) -> list[str]:
    lines = []
    for one in ones:
        about = f"set {text.short(one.set_digest)}, profile {versioned(one)}, node {one.node}"
        lines += text.wrap(f"{one.id} {one.verdict}: {about}", _COLUMNS, rest=_INDENT * 2)
    for sentence in because:
        lines += text.wrap(sentence, _COLUMNS, first=f"{_INDENT}- ", rest=_INDENT * 2)
    return lines
