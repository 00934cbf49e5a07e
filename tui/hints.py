"""What is said where there is nothing to show or nothing to do: it names the key or the command that helps."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from bus.messages.gates import ProbeView
from bus.states import PROBE, ProbeState
from tui.model import Board, asking, visible

_EMPTY: Final = """
 No probe yet. The way to the first one:

   modelforge artifact scan PATH
   modelforge profile create NAME
   modelforge assess SET --profile NAME --node NODE
   modelforge approve add SET --reason …
   modelforge probe queue ASSESSMENT
"""


def empty_hint(board: Board) -> str:
    """Why no probe is listed, and what to do: only the wishes that hide rows are named."""
    if board.picture is None:
        return ""
    if not board.picture.probes:
        return _EMPTY
    if not board.faults_only:
        return "\n No probe matches. esc clears the filter.\n"
    if not board.filter_text:
        return "\n No probe is at fault. f lists all of them again.\n"
    return "\n No fault matches. esc clears the filter; f lists more than faults.\n"


def next_hint(board: Board, moment: datetime) -> str | None:
    """Why there is no next probe to go to; `None` when there is one."""
    if board.picture is None:
        return "Nothing is known yet."
    wanted = {view.id for view in asking(board.picture, moment)}
    if not wanted:
        return "No probe asks for you."
    listed = wanted & {view.id for view in visible(board, moment)}
    if not listed:
        words = "1 probe asks" if len(wanted) == 1 else f"{len(wanted)} probes ask"
        return f"{words} for you, but the filter hides that: esc clears it."
    return "No other probe in the list asks for you." if listed == {board.cursor} else None


def kept_hint(view: ProbeView | None) -> str:
    """What becomes of a probe that was not cancelled after all."""
    if view is None or PROBE.is_terminal(view.state):
        return "Not cancelled: it has ended by itself."
    return "Not cancelled: it waits on." if view.state is ProbeState.QUEUED else "Not cancelled: it runs on."


def no_log_hint(view: ProbeView, attempt: int) -> str:
    """Why an attempt has no log, when that is no failure."""
    if view.attempt < attempt:
        return "No attempt has begun yet; each leaves its log when it ends."
    if view.attempt == attempt and not PROBE.is_terminal(view.state) and view.state is not ProbeState.QUEUED:
        return f"Attempt {attempt} is under way ({view.state.value}); its log comes with its end."
    return f"Attempt {attempt} ended without leaving a log."
