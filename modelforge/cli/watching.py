"""Following probes live: one line for each state that a probe enters, none lost, none twice."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from bus import verbs
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.messages.api import ById
from bus.states import PROBE
from modelforge import format as text
from modelforge.cli import boundary
from modelforge.cli.output import columns
from modelforge.cli.patience import patiently
from modelforge.cli.session import patience_for, wait_until

if TYPE_CHECKING:
    from bus.messages.evidence import PhaseMark
    from bus.messages.gates import ProbeView
    from bus.operator import Operator
    from modelforge.cli.command import App
    from modelforge.cli.output import Progress


class Marks:
    """Which states of which probes were already told.

    A reader that comes late finds the skipped states in the timeline, so that no phase is ever missing.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, str, int]] = {}

    def news(self, probe: ProbeView) -> list[str]:
        """Lines for what is new about `probe` since the last call."""
        key = (probe.attempt, probe.state.value, len(probe.timeline))
        before = self._told.get(probe.id)
        if before == key:
            return []
        self._told[probe.id] = key
        told = before[2] if before is not None else 0
        return [_mark_line(probe, mark) for mark in probe.timeline[told:]]


def _mark_line(probe: ProbeView, mark: PhaseMark) -> str:
    """One state; the line of the probe's end also says what came of it."""
    line = f"{text.moment(mark.at)}  {probe.id}  {mark.state:<14}  attempt {mark.attempt}"
    if not PROBE.is_terminal(mark.state):
        return line
    if probe.failure is not None:
        return f"{line}  {probe.failure.code}: {probe.failure.message}"
    return f"{line}  candidate {probe.candidate_id}" if probe.candidate_id else line


def tell_news(app: App, marks: Marks, probe: ProbeView) -> None:
    """Print what is new about a probe: a line for each new state, or, as JSON, the whole picture on one line."""
    news = marks.news(probe)
    if news:
        app.out.line("probe", probe, lambda: "\n".join(news))


async def follow_probe(
    operator: Operator,
    progress: Progress,
    probe_id: str,
    *,
    timeout_s: float | None,
    changed: Callable[[ProbeView], None] | None = None,
    told: int = 0,
) -> ProbeView:
    """Wait for a probe's end, naming each phase once; `changed` is told every new picture.

    A phase that was over before anybody looked stands in the timeline, so that none is left out. `told` is how many of
    the timeline's entries the reader has seen.

    Raises:
        ModelForgeError: UNKNOWN_ID, WAIT_TIMEOUT, or why the controller has not answered for too long.
    """
    last: list[ProbeView] = []
    seen = [told]

    async def read() -> ProbeView:
        view = await operator.call(verbs.PROBES_SHOW, ById(id=probe_id))
        for mark in view.timeline[seen[0] :]:
            progress.phase(f"probe {view.id} {mark.state}, attempt {mark.attempt}")
        seen[0] = max(seen[0], len(view.timeline))
        if changed is not None and (not last or last[0] != view):
            last[:] = [view]
            changed(view)
        return view

    # The id in full, for the subject.
    first = await patiently(
        lambda: operator.call(verbs.PROBES_SHOW, ById(id=probe_id)), patience_for(progress, timeout_s)
    )
    return await wait_until(
        operator,
        "probe",
        first.id,
        read=read,
        done=lambda view: PROBE.is_terminal(view.state),
        progress=progress,
        timeout_s=timeout_s,
    )


async def watch_all(operator: Operator, app: App, timeout_s: float | None) -> None:
    """Tell every state that any probe enters, until interrupted; what had ended before is not told.

    Raises:
        ModelForgeError: WAIT_TIMEOUT when `timeout_s` is over.
    """
    from bus.feed import FeedState, ProbeFeed  # noqa: PLC0415 -- only this form of watching needs the feed

    marks, reachable, is_first = Marks(), [True], [True]

    def on_change(state: FeedState) -> None:
        if state.connected != reachable[0]:
            reachable[0] = state.connected
            app.out.note("connected again" if state.connected else f"not connected: {state.last_error}", "warn")
        for probe in reversed(list(state.probes.values())):
            if is_first[0] and PROBE.is_terminal(probe.state):
                marks.news(probe)
            else:
                tell_news(app, marks, probe)
        is_first[0] = not state.connected and is_first[0]

    try:
        async with asyncio.timeout(timeout_s):
            await ProbeFeed(operator).run(on_change)
    except TimeoutError as error:
        message = f"watched for {timeout_s:g} s"
        raise ModelForgeError(ErrorCode.WAIT_TIMEOUT, message) from error


def probe_exit(app: App, probe: ProbeView) -> int:
    """The exit code of a probe that ended; its failure is told on stderr in the usual three lines."""
    if probe.failure is None:
        return Exit.OK if probe.state == "completed" else Exit.FAILED
    wide = columns() if sys.stderr.isatty() else None
    app.out.note(boundary.explain(ModelForgeError.from_failure(probe.failure), wide=wide))
    return boundary.exit_of(probe.failure.code)
