"""What the operator may do to a probe now, and if not, why not: an action is greyed out, never hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bus.messages.gates import ProbeView
from bus.states import PROBE, Cause, ProbeEvent, ProbeState
from tui.model import Board

# So many characters of an id's random part have to be typed before an action that cannot be taken back.
TYPED_CHARS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An action: possible when `reason` is `None`; `effect` says what it will do."""

    reason: str | None = None
    effect: str = ""


def cancel_offer(board: Board, view: ProbeView | None) -> Offer:
    """May this probe be cancelled from here? The state tables decide; the controller decides again."""
    if view is None:
        return Offer(reason="no probe is chosen")
    reason = _ended(view) or _unable(board)
    if reason is not None:
        return Offer(reason=reason)
    if PROBE.allows(view.state, ProbeEvent.CANCEL, Cause.OPERATOR):
        return Offer(effect="No attempt has begun: it ends at once.")
    if PROBE.allows(view.state, ProbeEvent.UNLOAD, Cause.NODE):
        return Offer(effect=f"Node {view.node} ends the child, checks reclaim, and makes no candidate.")
    if PROBE.allows(view.state, ProbeEvent.CANCEL, Cause.NODE):
        return Offer(effect="It is already unloading: the cancel may come too late to change the outcome.")
    return Offer(reason=f"a probe that is {view.state.value} cannot be cancelled")


def _ended(view: ProbeView) -> str | None:
    if PROBE.is_terminal(view.state):
        return f"it has already ended: {view.state.value}"
    return "its cancellation is already under way" if view.cancel_requested else None


def _unable(board: Board) -> str | None:
    if board.refusal is not None:
        return board.refusal
    return None if board.link.live else f"the link is {board.link.state.value}"


def challenge(probe_id: str) -> str:
    """What has to be typed to confirm: the beginning of the id's random part."""
    return probe_id.rpartition("-")[2][:TYPED_CHARS]


def command_for(view: ProbeView) -> str:
    """The command line that shows what the screen shows."""
    if view.state is ProbeState.FAILED and view.log_ref is not None:
        return f"modelforge probe log {view.id}"
    return f"modelforge probe {'show' if PROBE.is_terminal(view.state) else 'watch'} {view.id}"
