"""The lines around the table: what there is, what is wrong, how far the picture may be trusted, and the keys."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from bus.errors import CODES, ErrorCode
from bus.states import PROBE, ProbeState
from tui.format import clock, running
from tui.lines import Line, Span, Tone, joined, line, span
from tui.model import Board, Fault, LinkState, Picture, age_s, elapsed_s, fault_of, superseded

_LINKS: Final[dict[LinkState, tuple[str, Tone]]] = {
    LinkState.CONNECTING: ("◌", Tone.WARN),
    LinkState.CONNECTED: ("●", Tone.GOOD),
    LinkState.RECONNECTING: ("◌", Tone.WARN),
    LinkState.DISCONNECTED: ("✗", Tone.BAD),
}
_NAMED_FAULTS: Final = 3
# The feed asks again every few seconds: a picture older than this is in doubt, though the link says nothing yet.
OLD_S: Final = 15.0


def title_line(board: Board) -> Line:
    """Product, counts by kind, and every wish that hides rows."""
    parts: list[Line] = []
    if board.picture is not None:
        states = [view.state for view in board.picture.probes.values()]
        active = sum(not PROBE.is_terminal(state) and state is not ProbeState.QUEUED for state in states)
        parts.append(line(span(f"{active} active", Tone.ACTIVE if active else Tone.DIM)))
        for state, tone in (
            (ProbeState.QUEUED, Tone.TEXT), (ProbeState.FAILED, Tone.BAD),
            (ProbeState.COMPLETED, Tone.GOOD), (ProbeState.CANCELLED, Tone.WARN),
        ):  # fmt: skip
            count = states.count(state)
            parts.append(line(span(f"{count} {state.value}", tone if count else Tone.DIM)))
    wishes: list[Line] = []
    if board.faults_only:
        wishes.append(line(span("faults only", Tone.WARN)))
    if board.filter_text:
        wishes.append(line(span(f"/{board.filter_text}", Tone.WARN)))
    head = line(span(" modelforge ", Tone.STRONG), span("probes  ", Tone.DIM))
    return (*head, *joined(parts), *((Span("   ", Tone.DIM), *joined(wishes)) if wishes else ()))


def attention_line(board: Board, moment: datetime) -> Line:
    """The one line that says what is wrong: probes that ask for the operator, and nodes that are gone."""
    if board.picture is None:
        return line(span(" waiting for the first picture", Tone.DIM))
    words = _faults(board.picture, moment)
    if not words:
        return line(Span(" ✓ ", Tone.GOOD), span("nothing asks for you", Tone.DIM))
    shown = words[:_NAMED_FAULTS]
    more = f" · {len(words) - len(shown)} more (f)" if len(words) > len(shown) else ""
    return line(span(f" ✗ {len(words)}: ", Tone.BAD), span(" · ".join(shown), Tone.BAD), span(more, Tone.DIM))


def _faults(picture: Picture, moment: datetime) -> list[str]:
    old = superseded(picture)
    words = [f"node {node.name} is offline" for node in picture.nodes.values() if node.liveness == "offline"]
    words += [f"node {node.name} is doubtful" for node in picture.nodes.values() if node.liveness == "doubtful"]
    for view in sorted(picture.probes.values(), key=lambda view: view.queued_at, reverse=True):
        fault = fault_of(view, picture.nodes, moment)
        if fault is Fault.OVER_BUDGET:
            words.append(f"{view.id} {view.state.value} over budget, {running(elapsed_s(view, moment))}")
        elif fault is Fault.FAILED and view.id not in old:
            words.append(f"{view.id} {view.failure.code if view.failure else 'failed'}")
    return words


def status_line(board: Board, now: datetime, *, context: str) -> Line:
    """Who looks at what, and how fresh it is."""
    link = board.link
    glyph, tone = _LINKS[link.state]
    since = "" if link.live else f" {running((now - link.since).total_seconds())}"
    parts = [line(span(f" {glyph} {link.state.value}{since}", tone)), line(span(context))]
    if board.picture is not None:
        parts.append(line(span(f"event {board.picture.sequence}", Tone.DIM)))
        parts.append(line(_freshness(board, now)))
    if board.refusal is not None:
        parts.append(line(span("read-only", Tone.WARN)))
    if not link.live and link.reason:
        parts.append(line(span(link.reason, Tone.DIM)))
    return joined(parts)


def _freshness(board: Board, now: datetime) -> Span:
    age = age_s(board, now)
    if board.picture is not None and not board.link.live:
        return span(f"as of {clock(board.picture.as_of)} UTC ({running(age)} ago)", Tone.BAD)
    return span(f"{running(age)} old", Tone.WARN if age > OLD_S else Tone.DIM)


def keys_line(keys: tuple[tuple[str, str, bool], ...]) -> Line:
    """Key, what it does, and whether it can be used now; what cannot stays where it was, but dim."""
    parts = [
        line(span(key, Tone.ACTIVE if usable else Tone.DIM), span(f" {word}", Tone.TEXT if usable else Tone.DIM))
        for key, word, usable in keys
    ]
    return (Span(" ", Tone.DIM), *joined(parts, "  "))


def refusal_text(code: ErrorCode, message: str) -> str:
    """A refusal in one line: what was said, and what to do next."""
    return f"{code.value}: {message}. {CODES[code].remedy}"
