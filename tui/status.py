"""The lines around the table: what there is, what is wrong, how far the picture may be trusted, and the keys."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.cells import cell_len

from bus.errors import CODES, ErrorCode
from bus.states import PROBE, ProbeState
from tui.format import clock, running
from tui.lines import Line, Span, Tone, joined, line, span
from tui.model import Board, Fault, LinkState, Picture, age_s, asking, elapsed_s, fault_of

_LINKS: Final[dict[LinkState, tuple[str, Tone]]] = {
    LinkState.CONNECTING: ("◌", Tone.WARN),
    LinkState.CONNECTED: ("●", Tone.GOOD),
    LinkState.SILENT: ("✗", Tone.BAD),
    LinkState.RECONNECTING: ("◌", Tone.WARN),
    LinkState.DISCONNECTED: ("✗", Tone.BAD),
}
_COUNTED: Final = (
    (ProbeState.QUEUED, Tone.TEXT),
    (ProbeState.FAILED, Tone.BAD),
    (ProbeState.COMPLETED, Tone.GOOD),
    (ProbeState.CANCELLED, Tone.WARN),
)
_MORE_CELLS: Final = 10
# The feed asks again every few seconds: a picture older than this is in doubt, though the link says nothing yet.
OLD_S: Final = 15.0


def title_line(board: Board, shown: int) -> Line:
    """Product, every wish that hides rows and how many it leaves, and counts by state."""
    if board.picture is None:
        return line(span(" modelforge ", Tone.STRONG), span("probes", Tone.DIM))
    states = [view.state for view in board.picture.probes.values()]
    active = sum(not PROBE.is_terminal(state) and state is not ProbeState.QUEUED for state in states)
    parts = [line(span(f"{active} active", Tone.ACTIVE if active else Tone.DIM))]
    for state, tone in _COUNTED:
        count = states.count(state)
        parts.append(line(span(f"{count} {state.value}", tone if count else Tone.DIM)))
    wishes = [f"/{board.filter_text}"] if board.filter_text else []
    wishes += ["faults only"] if board.faults_only else []
    what = span(f"{' '.join(wishes)}  {shown} of {len(states)}  ", Tone.WARN) if wishes else span("probes  ", Tone.DIM)
    return (Span(" modelforge ", Tone.STRONG), what, *joined(parts))


def attention_line(board: Board, moment: datetime, width: int) -> Line:
    """The one line that says what is wrong: probes that ask for the operator, and nodes that are gone."""
    if board.picture is None:
        return line(span(" waiting for the first picture", Tone.DIM))
    words = _faults(board.picture, moment)
    if not words:
        return line(Span(" ✓ ", Tone.GOOD), span("nothing asks for you", Tone.DIM))
    text = f" ✗ {len(words)}: {words[0]}"
    shown = 1
    while shown < len(words) and cell_len(f"{text} · {words[shown]}") <= width - _MORE_CELLS:
        text += f" · {words[shown]}"
        shown += 1
    more = f"  +{len(words) - shown} more" if len(words) > shown else ""
    return line(span(text, Tone.BAD), span(more, Tone.DIM))


def _faults(picture: Picture, moment: datetime) -> list[str]:
    words = [f"node {node.name} is {node.liveness}" for node in picture.nodes.values() if node.liveness != "online"]
    for view in sorted(asking(picture, moment), key=lambda view: view.queued_at, reverse=True):
        if fault_of(view, picture.nodes, moment) is Fault.OVER_BUDGET:
            words.append(f"{view.id} over budget {running(elapsed_s(view, moment))}")
        elif view.state is ProbeState.FAILED:
            words.append(f"{view.id} {view.failure.code if view.failure else 'failed'}")
    return words


def status_line(board: Board, now: datetime, *, context: str) -> Line:
    """Who looks at what, and how fresh it is."""
    link = board.link
    glyph, tone = _LINKS[link.state]
    since = "" if link.live else f" {running((now - link.since).total_seconds())}"
    parts = [line(span(f" {glyph} {link.state.value}{since}", tone))]
    if board.picture is not None:
        parts.append(line(_freshness(board, now)))
    if not link.live and link.reason:
        parts.append(line(span(link.reason, Tone.WARN)))
    if board.refusal is not None:
        parts.append(line(span("read-only", Tone.WARN)))
    parts.append(line(span(context, Tone.DIM)))
    if board.picture is not None:
        parts.append(line(span(f"event {board.picture.sequence}", Tone.DIM)))
    return joined(parts)


def _freshness(board: Board, now: datetime) -> Span:
    age = age_s(board, now)
    if board.picture is not None and not board.link.live:
        return span(f"as of {clock(board.picture.as_of)} UTC ({running(age)} ago)", Tone.BAD)
    return span(f"{running(age)} ago", Tone.WARN if age > OLD_S else Tone.DIM)


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
