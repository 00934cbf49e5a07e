"""A probe as one row: short texts, the most telling of them last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.states import PROBE, ProbeState
from tui.format import clock, digest, duration, running
from tui.lines import Tone
from tui.model import GLYPHS, TONES, Fault, budget_s, elapsed_s, fault_of, total_s

GAUGE_CELLS: Final = 8
_TIMES_CELLS: Final = 14  # `12m34s of 5m00s` begins the gauge of every row in one column


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One probe as a row: short texts, not yet cut to any width."""

    id: str
    phase: str
    tone: Tone
    node: str
    attempt: str
    total: str
    note: str
    note_tone: Tone
    profile: str
    location: str
    queued: str
    queued_by: str
    digest: str


def row_of(view: ProbeView, nodes: Mapping[str, NodeView], moment: datetime) -> ProbeRow:
    """A probe as a row."""
    note, note_tone = _note(view, nodes, moment)
    total = total_s(view, moment)
    return ProbeRow(
        id=view.id,
        phase=f"{GLYPHS[view.state]} {view.state.value}",
        tone=TONES[view.state],
        node=view.node,
        attempt=f"{view.attempt}/{view.max_attempts}",
        total=duration(total) if PROBE.is_terminal(view.state) else running(total),
        note=note,
        note_tone=note_tone,
        profile=view.profile_name,
        location=view.location,
        queued=clock(view.queued_at),
        queued_by=view.queued_by,
        digest=digest(view.set_digest),
    )


def _note(view: ProbeView, nodes: Mapping[str, NodeView], moment: datetime) -> tuple[str, Tone]:
    """What matters most about a probe in one short phrase: time against budget, or how it ended."""
    if view.state is ProbeState.FAILED:
        return (view.failure.code if view.failure else "no reason recorded"), Tone.BAD
    if view.state is ProbeState.COMPLETED:
        return view.candidate_id or "passed", Tone.GOOD
    if view.state is ProbeState.CANCELLED:
        return "on request", Tone.DIM
    return _progress(view, fault_of(view, nodes, moment), elapsed_s(view, moment))


def _progress(view: ProbeView, fault: Fault | None, elapsed: float) -> tuple[str, Tone]:
    time = running(elapsed)
    if fault is Fault.NODE_OFFLINE:
        return f"! node offline, {time}", Tone.BAD
    if view.cancel_requested:
        return f"cancelling, {time}", Tone.WARN
    if view.state is ProbeState.QUEUED:
        return f"waiting {time}", Tone.DIM
    budget = budget_s(view.state, view.budgets)
    if budget is None:
        return time, Tone.TEXT
    if fault is Fault.OVER_BUDGET:
        return f"! {time} of {running(budget)} over", Tone.BAD
    return f"{time} of {running(budget)}".ljust(_TIMES_CELLS) + f" {gauge(elapsed / budget)}", Tone.TEXT


def gauge(part: float, cells: int = GAUGE_CELLS) -> str:
    """A part of a whole as a bar; begun cells are shown full."""
    full = min(max(math.ceil(part * cells), 0), cells)
    return "▰" * full + "▱" * (cells - full)
