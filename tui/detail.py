"""Everything about one probe, as lines: the failure and what to do first, then what was measured, then its history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from bus.errors import CODES, ErrorCode, Failure, Retry
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.states import PROBE, PROBE_ACTIVE, ProbeState
from tui.evidence import evidence_lines
from tui.format import clock, digest, duration, na, stamp
from tui.lines import BLANK, Line, Span, Tone, cell, line, paragraph, span
from tui.model import GLYPHS, TONES

_LABEL_CELLS: Final = 10
MARGIN_CELLS: Final = 1
_MARGIN: Final = Span(" " * MARGIN_CELLS, Tone.TEXT)
_RETRY: Final[dict[Retry, str]] = {
    Retry.NEVER: "the same request will fail again",
    Retry.AFTER_FIX: "may be queued again after that",
    Retry.LATER: "may be tried again later, unchanged",
}


def title_line(view: ProbeView, node: NodeView | None = None) -> Line:
    """The probe's name, state and attempt in one line, and its node, when that is not there."""
    gone = "" if node is None or node.liveness == "online" else f" ({node.liveness})"
    return line(
        span(view.id, Tone.STRONG), "  ", span(f"{GLYPHS[view.state]} {view.state.value}", TONES[view.state]),
        span(f"  attempt {view.attempt} of {view.max_attempts}  on ", Tone.DIM), span(view.node), span(gone, Tone.BAD),
    )  # fmt: skip


def detail_lines(view: ProbeView, width: int, *, outdated: bool = False, missing: str | None = None) -> list[Line]:
    """The detail pane at `width` cells.

    `outdated` says that a later probe passed where this one failed; `missing` says why evidence that could be there
    is not (it is still being asked for, or the controller refused).
    """
    width -= MARGIN_CELLS
    lines = [*_verdict(view, width, outdated=outdated), *_identity(view, width)]
    lines.append(BLANK)
    if view.evidence is not None:
        lines.extend(evidence_lines(view.evidence, width))
    else:
        lines.extend(paragraph("measured", na(missing or _why_no_evidence(view)), width, Tone.DIM))
    lines.append(BLANK)
    lines.extend(_history(view))
    return [(_MARGIN, *content) for content in lines]


def _why_no_evidence(view: ProbeView) -> str:
    if view.state is ProbeState.QUEUED:
        return "no attempt has begun"
    if not PROBE.is_terminal(view.state):
        return "evidence comes with the end of the attempt"
    return "no attempt left any"


def _verdict(view: ProbeView, width: int, *, outdated: bool) -> Iterator[Line]:
    if view.state is ProbeState.CANCELLED and view.failure is not None and view.failure.code == ErrorCode.CANCELLED:
        yield from _wish_lines(view.failure, width)
        yield BLANK
    elif view.failure is not None:
        yield from failure_lines(view.failure, width, view.id)
        if outdated:
            text = "a later probe of this set and profile passed on this node"
            yield from paragraph("since", text, width, Tone.GOOD)
        yield BLANK
    elif view.candidate_id is not None:
        yield from paragraph("passed", f"candidate {view.candidate_id}, lab ready, never production", width, Tone.GOOD)
    elif view.cancel_requested and not PROBE.is_terminal(view.state):
        text = "requested; the node ends the child and checks that its memory is given back"
        yield from paragraph("cancel", text, width, Tone.WARN)


def _wish_lines(failure: Failure, width: int) -> Iterator[Line]:
    """A cancel is what somebody asked for: it is told as that, and not as a failure with a code."""
    yield from paragraph("on request", failure.message, width, Tone.STRONG, indent=_LABEL_CELLS + 1)
    yield from paragraph("next", CODES[ErrorCode.CANCELLED].remedy, width, Tone.DIM, indent=_LABEL_CELLS + 1)


def failure_lines(failure: Failure, width: int, about: str | None = None) -> Iterator[Line]:
    """What happened, why, and what to type next; a code of a newer version is shown as it came."""
    yield line(cell("✗ failed", _LABEL_CELLS, Tone.BAD), span(failure.code, Tone.BAD))
    yield from paragraph("what", failure.message, width, Tone.STRONG)
    known = {code.value: code for code in ErrorCode}.get(failure.code)
    if known is None:
        yield from paragraph("next", "this version does not know the code; upgrade it", width, Tone.WARN)
    else:
        info = CODES[known]
        remedy = info.remedy if about is None else info.remedy.replace(" ID`", f" {about}`")
        yield from paragraph("why", info.meaning, width)
        yield from paragraph("next", remedy, width, Tone.WARN)
        yield from paragraph("", _RETRY[info.retry], width, Tone.DIM)
    if failure.context:
        facts = " · ".join(f"{key} {value}" for key, value in sorted(failure.context.items()))
        yield from paragraph("facts", facts, width, Tone.DIM)


def _identity(view: ProbeView, width: int) -> Iterator[Line]:
    yield from paragraph("set", f"{view.location} · sha256 {digest(view.set_digest)}", width)
    yield from paragraph("profile", f"{view.profile_name} · {view.start_method} start", width)
    gates = f"assessment {view.assessment_id} · approval {view.approval_id}"
    yield from paragraph("gates", gates, width)
    yield from paragraph("queued", f"{stamp(view.queued_at)} UTC by {view.queued_by}", width)
    yield from paragraph("log", view.log_ref or na("it comes with the end of an attempt"), width, Tone.DIM)


def _history(view: ProbeView) -> Iterator[Line]:
    """Every phase of every attempt, with the time it took."""
    yield line(cell("history", _LABEL_CELLS, Tone.LABEL), Span(clock(view.queued_at), Tone.DIM), "  queued")
    # The ledger marks the queue too, before any attempt: the line above has said it.
    begun = (mark for mark in view.timeline if mark.state is not ProbeState.QUEUED or mark.attempt > 0)
    marks = sorted(begun, key=lambda mark: (mark.attempt, mark.at))
    for index, mark in enumerate(marks):
        following = marks[index + 1].at if index + 1 < len(marks) else view.finished_at
        tone = TONES[mark.state] if mark.state is view.state and following is None else Tone.TEXT
        took = "" if mark.state not in PROBE_ACTIVE or following is None else _took(following - mark.at)
        yield line(
            cell("", _LABEL_CELLS), Span(clock(mark.at), Tone.DIM),
            cell(f"  {GLYPHS[mark.state]} {mark.state.value}", 20, tone), cell(took, 7, right=True),
            span(f"  attempt {mark.attempt}", Tone.DIM),
        )  # fmt: skip
    if view.finished_at is not None and (not marks or marks[-1].state is not view.state):
        word = f"  {GLYPHS[view.state]} {view.state.value}"
        yield line(cell("", _LABEL_CELLS), Span(clock(view.finished_at), Tone.DIM), span(word, TONES[view.state]))


def _took(delta: timedelta) -> str:
    return duration(delta.total_seconds())
