"""The phases of a probe as a pipeline: what is done, where it stands, where it broke, and how long each took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from bus.errors import ErrorCode
from bus.messages.gates import ProbeView
from bus.states import PROBE, PROBE_ACTIVE, ProbeState
from tui.format import duration, running
from tui.lines import BLANK, Line, Span, Tone, cell, span
from tui.model import GLYPHS, TONES, budget_s, elapsed_s
from tui.rows import gauge

SHORT: Final[dict[ProbeState, str]] = {
    ProbeState.QUEUED: "queue",
    ProbeState.PREPARING: "prepare",
    ProbeState.LOADING: "load",
    ProbeState.HEALTHCHECKING: "check",
    ProbeState.READY: "ready",
    ProbeState.UNLOADING: "unload",
    ProbeState.COMPLETED: "done",
    ProbeState.FAILED: "failed",
    ProbeState.CANCELLED: "cancel",
}
# Full names need this many cells; below, the short ones are taken.
WIDE_CELLS: Final = 96
_GAUGE_CELLS: Final = 24
_STEP_CELLS: Final = 8  # two of indent, and a duration
_ARROW: Final = " → "


class Mark(StrEnum):
    """How a step stands."""

    DONE = "done"
    CURRENT = "current"
    BROKEN = "broken"
    NEVER = "never"  # skipped, or not reached before the end
    PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One phase of the latest attempt."""

    state: ProbeState
    mark: Mark
    seconds: float | None = None


def steps(view: ProbeView, moment: datetime) -> tuple[Step, ...]:
    """The phases from `queued` to the end, as the latest attempt went through them."""
    entered = _entered(view)
    terminal = PROBE.is_terminal(view.state)
    end = (view.finished_at or view.state_at) if terminal else moment
    last = view.state if terminal else ProbeState.COMPLETED
    broken = _broken(view, entered)
    result = []
    for state in (ProbeState.QUEUED, *PROBE_ACTIVE):
        seconds = _seconds(view, state, entered, end)
        if state is broken:
            mark = Mark.BROKEN
        elif state is view.state:
            mark = Mark.CURRENT
        elif seconds is not None:
            mark = Mark.DONE
        else:
            mark = Mark.NEVER if terminal or view.state is ProbeState.UNLOADING else Mark.PENDING
        result.append(Step(state=state, mark=mark, seconds=seconds))
    mark = Mark.PENDING if not terminal else Mark.BROKEN if view.state is ProbeState.FAILED else Mark.DONE
    return (*result, Step(state=last, mark=mark))


def _entered(view: ProbeView) -> list[tuple[ProbeState, datetime]]:
    """When the latest attempt entered each phase, in order."""
    marks = [mark for mark in view.timeline if mark.attempt == view.attempt and mark.state in PROBE_ACTIVE]
    entered = [(mark.state, mark.at) for mark in sorted(marks, key=lambda mark: mark.at)]
    if view.state in PROBE_ACTIVE and (not entered or entered[-1][0] is not view.state):
        entered.append((view.state, view.state_at))
    return entered


def _seconds(
    view: ProbeView, state: ProbeState, entered: list[tuple[ProbeState, datetime]], end: datetime
) -> float | None:
    """How long a phase took, or has taken so far; the queue ended with the first attempt, not with the latest."""
    if state is ProbeState.QUEUED:
        begun = (mark.at for mark in view.timeline if mark.state is not ProbeState.QUEUED)
        first = min(begun, default=entered[0][1] if entered else end)
        return max((first - view.queued_at).total_seconds(), 0.0)
    for index, (name, at) in enumerate(entered):
        if name is state:
            until = entered[index + 1][1] if index + 1 < len(entered) else end
            return max((until - at).total_seconds(), 0.0)
    return None


def _broken(view: ProbeView, entered: list[tuple[ProbeState, datetime]]) -> ProbeState | None:
    """The phase that a failed probe broke in: the last before the unloading that every failure goes through."""
    if view.state is not ProbeState.FAILED:
        return None
    reached = [state for state, _ in entered]
    if view.failure is not None and view.failure.code == ErrorCode.GPU_MEMORY_NOT_RECLAIMED:
        return ProbeState.UNLOADING
    before = [state for state in reached if state is not ProbeState.UNLOADING] or [ProbeState.QUEUED]
    return ProbeState.UNLOADING if before[-1] is ProbeState.READY and ProbeState.UNLOADING in reached else before[-1]


def pipeline_lines(view: ProbeView, moment: datetime, width: int) -> tuple[Line, Line, Line]:
    """Three lines: the phases, their durations under them, and the present phase against its budget."""
    names: list[Span] = []
    times: list[Span] = []
    margin = Span(" ", Tone.DIM)
    for step in steps(view, moment):
        if names:
            names.append(Span(_ARROW, Tone.DIM))
            times.append(Span(" " * len(_ARROW), Tone.DIM))
        label = f"{_glyph(step)} {step.state.value if width >= WIDE_CELLS else SHORT[step.state]}"
        cells = max(len(label), _STEP_CELLS)
        tone = _tone(step)
        names.append(cell(label, cells, tone))
        times.append(cell(f"  {_time(step)}", cells, tone if step.mark is Mark.CURRENT else Tone.DIM))
    return (margin, *names), (margin, *times), (margin, *_budget_line(view, moment))


def _glyph(step: Step) -> str:
    return {
        Mark.DONE: "⊘" if step.state is ProbeState.CANCELLED else "✓",
        Mark.CURRENT: GLYPHS[step.state],
        Mark.BROKEN: "✗",
        Mark.NEVER: "-",
        Mark.PENDING: "·",
    }[step.mark]


def _tone(step: Step) -> Tone:
    if step.mark is Mark.DONE and step.state is ProbeState.CANCELLED:
        return Tone.WARN
    return {
        Mark.DONE: Tone.GOOD,
        Mark.CURRENT: TONES[step.state],
        Mark.BROKEN: Tone.BAD,
        Mark.NEVER: Tone.DIM,
        Mark.PENDING: Tone.DIM,
    }[step.mark]


def _time(step: Step) -> str:
    if step.seconds is None:
        return ""
    return running(step.seconds) if step.mark is Mark.CURRENT else duration(step.seconds)


def _budget_line(view: ProbeView, moment: datetime) -> Line:
    """The present phase against its budget, in words and as a bar: is it slow, or does it hang?"""
    budget, elapsed = budget_s(view.state, view.budgets), elapsed_s(view, moment)
    if PROBE.is_terminal(view.state):
        return BLANK
    if budget is None:
        return (
            span(f"{view.state.value} for {running(elapsed)}", TONES[view.state]),
            Span(", no limit of its own", Tone.DIM),
        )
    text = f"{view.state.value} {running(elapsed)} of {running(budget)}"
    if elapsed > budget:
        over = running(elapsed - budget)
        return (Span(gauge(1.0, _GAUGE_CELLS), Tone.BAD), span(f" {text}, over budget by {over}", Tone.BAD))
    part = elapsed / budget
    return (Span(gauge(part, _GAUGE_CELLS), Tone.ACTIVE), span(f" {text} ({part:.0%})"))
