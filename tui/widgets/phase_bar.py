"""The phases of the chosen probe, from queued to its end, with durations and the budget of the present one."""

from __future__ import annotations

from datetime import datetime

from bus.messages.gates import ProbeView
from bus.states import PROBE
from tui.pipeline import pipeline_lines
from tui.widgets.line_view import LineBar


class PhaseBar(LineBar):
    """Two lines for a probe that has ended, a third for the budget of one that has not."""

    DEFAULT_CSS = """
    PhaseBar { height: 3; }
    """

    def show(self, view: ProbeView | None, moment: datetime) -> None:
        """Show one probe's phases."""
        lines = pipeline_lines(view, moment, self.size.width) if view is not None else ()
        self.styles.height = 2 if view is not None and PROBE.is_terminal(view.state) else 3
        self.set_lines(lines)
