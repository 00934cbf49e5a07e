"""The probes screen: the list, the chosen probe, what is wrong, and how fresh it all is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.screen import Screen
from textual.widgets import Input

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import ProbeView
from bus.states import PROBE
from bus.text import clean_line
from tui import status
from tui.actions import cancel_offer, command_for
from tui.desk import Desk
from tui.evidence_cache import EvidenceCache
from tui.hints import empty_hint, kept_hint, next_hint
from tui.model import (
    Board,
    Link,
    LinkState,
    Picture,
    linked,
    moment_of,
    moved,
    next_asking,
    received,
    superseded,
    visible,
)
from tui.screens.cancel import CancelScreen
from tui.screens.log import LogScreen
from tui.widgets.detail_pane import Detail, DetailPane
from tui.widgets.line_view import LineBar, LineView
from tui.widgets.probe_table import ProbeHeading, ProbeTable, Table

SIDE_BY_SIDE_CELLS: Final = 150
EVIDENCE_DELAY_S: Final = 0.15  # a cursor that only passes by asks for nothing
MAX_FILTER_CHARS: Final = 80


class ProbesScreen(Screen[None]):
    """List above and detail below; side by side where there is room; one of both on request."""

    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (SIDE_BY_SIDE_CELLS, "-beside")]  # noqa: RUF012 -- declared by Textual
    CSS = """
    ProbesScreen {
        #body { height: 1fr; layout: vertical; }
        #list { height: 4fr; }
        #detail { height: 5fr; }
        #title, #status { background: $panel; }
        #filter { display: none; height: 1; border: none; padding: 0 1; background: $boost; }
        &.-filtering #filter { display: block; }
        &.-filtering #keys { display: none; }
        &.-beside #body { layout: horizontal; }
        &.-beside #list { width: 81; height: 100%; }
        &.-beside #detail { width: 1fr; height: 100%; margin: 0 0 0 1; }
        &.-reading #list { display: none; }
        &.-listing #detail { display: none; }
        &.-listing #list { width: 100%; }
        &.-reading #detail { margin: 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "read", "read the chosen probe in full", id="probes.read"),
        Binding("escape", "back", "back, or clear the filter", id="probes.back"),
        Binding("d", "toggle_detail", "list alone, or with detail", id="probes.detail"),
        Binding("tab", "other_pane", "list or detail", id="probes.pane", priority=True),
        Binding("slash", "filter", "filter; ! in front turns it round", key_display="/", id="probes.filter"),
        Binding("n", "next_fault", "next probe that asks for you", id="probes.next-fault"),
        Binding("f", "faults", "faults only", id="probes.faults"),
        Binding("l", "log", "log of the attempt", id="probes.log"),
        Binding("x", "cancel", "cancel the probe, after a question", id="probes.cancel"),
        Binding("y", "copy_id", "copy the id (through the terminal: OSC 52)", id="probes.copy-id"),
        Binding("Y", "copy_command", "copy the command that shows the same", id="probes.copy-command"),
        Binding("q", "app.quit", "quit", id="probes.quit"),
    ]

    def __init__(self, desk: Desk, clock: Callable[[], datetime], paints_per_s: int) -> None:
        super().__init__()
        self._desk = desk
        self._clock = clock
        self._interval_s = 1 / paints_per_s
        self._changed = True
        self._painted_second = -1
        self._evidence = EvidenceCache()
        self.board = Board(link=Link(since=clock()))

    def compose(self) -> ComposeResult:
        """Bars around a body of two panes."""
        yield LineBar(id="title")
        yield LineBar(id="attention")
        with Container(id="body"):
            with Vertical(id="list"):
                yield ProbeHeading()
                yield ProbeTable(id="probes")
            yield DetailPane(id="detail")
        yield LineBar(id="status")
        yield LineBar(id="keys")
        yield Input(id="filter", placeholder="part of an id, node, profile, state or code", max_length=MAX_FILTER_CHARS)

    def on_mount(self) -> None:
        """Begin to listen and to paint."""
        self.query_one(ProbeTable).focus()
        self._watch()
        self.set_interval(self._interval_s, self._tick)

    # --- what arrives ---------------------------------------------------------------------------------------------

    @work(exclusive=True, group="watch", exit_on_error=False)
    async def _watch(self) -> None:
        reason = "the feed has ended"
        try:
            await self._desk.watch(self._receive)
        except ModelForgeError as error:
            reason = status.refusal_text(error.code, error.message)
        self._change(linked(self.board, LinkState.DISCONNECTED, self._clock(), reason))

    def _receive(self, picture: Picture) -> None:
        """Called by the feed for every event; painting waits for the next tick, so that floods cost no more."""
        if picture.connected and not self.board.link.live:
            self._evidence.forget_refusals()
        self._change(received(self.board, picture, self._clock()))

    def _change(self, board: Board) -> None:
        self.board = board
        self._changed = True

    # --- what is painted ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        second = int(self._clock().timestamp())
        if self._changed:
            self.paint()
        elif second != self._painted_second:
            self._painted_second = second
            self._paint_ageing()

    def _paint_ageing(self) -> None:
        """What changes by time alone: nothing but the status line, unless a probe is under way."""
        picture = self.board.picture
        if picture is not None and any(not PROBE.is_terminal(view.state) for view in picture.probes.values()):
            self.paint()
        else:
            self._paint_status()

    def paint(self) -> None:
        """Bring every widget up to the board; each repaints what differs."""
        self._changed = False
        now = self._clock()
        moment = moment_of(self.board, now)
        rows = visible(self.board, moment)
        board = self.board
        nodes = board.picture.nodes if board.picture else {}
        stale = board.picture is not None and not board.link.live
        self.query_one("#title", LineBar).set_lines([status.title_line(board, len(rows))])
        self.query_one("#attention", LineBar).set_lines([status.attention_line(board, moment, self.size.width)])
        self.query_one(ProbeTable).show(Table(rows=rows, nodes=nodes, moment=moment, cursor=board.cursor))
        self.query_one(DetailPane).show(self._detail(rows, moment))
        for widget in (self.query_one(ProbeTable), self.query_one(DetailPane)):
            widget.set_stale(stale)
        self._paint_status()

    def _paint_status(self) -> None:
        board = self.board
        context = self._desk.context
        self.query_one("#status", LineBar).set_lines([status.status_line(board, self._clock(), context=context)])
        chosen = self.chosen
        keys = (
            ("enter", "read", chosen is not None), ("/", "filter", True), ("n", "next", True), ("f", "faults", True),
            ("l", "log", chosen is not None), ("x", "cancel", cancel_offer(board, chosen).reason is None),
            ("y", "copy", chosen is not None), ("?", "help", True), ("q", "quit", True),
        )  # fmt: skip
        self.query_one("#keys", LineBar).set_lines([status.keys_line(keys)])

    def _detail(self, rows: tuple[ProbeView, ...], moment: datetime) -> Detail:
        picture = self.board.picture
        view = next((row for row in rows if row.id == self.board.cursor), None)
        if view is None or picture is None:
            return Detail(view=None, moment=moment, hint=empty_hint(self.board))
        if self._evidence.should_ask(view):
            self._ask_evidence(view)
        return Detail(
            view=self._evidence.with_evidence(view), node=picture.nodes.get(view.node), moment=moment,
            missing=self._evidence.why_missing(view),
            outdated=view.id in superseded(picture),
        )  # fmt: skip

    @work(exclusive=True, group="evidence", exit_on_error=False)
    async def _ask_evidence(self, view: ProbeView) -> None:
        """Lists carry no evidence: fetch that of the chosen probe once, and keep it while it is true."""
        await asyncio.sleep(EVIDENCE_DELAY_S)
        answer: ProbeView | str
        try:
            answer = await self._desk.show(view.id)
        except ModelForgeError as error:
            answer = status.refusal_text(error.code, error.message)
        self._evidence.keep(view, answer)
        self._changed = True

    # --- what the operator does -----------------------------------------------------------------------------------

    @property
    def chosen(self) -> ProbeView | None:
        """The probe under the cursor, if it is listed."""
        board = self.board
        rows = visible(board, moment_of(board, self._clock()))
        return next((view for view in rows if view.id == board.cursor), None)

    @on(ProbeTable.Moved)
    def _move(self, message: ProbeTable.Moved) -> None:
        rows = visible(self.board, moment_of(self.board, self._clock()))
        self._act(moved(self.board, rows, message.steps))

    @on(ProbeTable.Picked)
    def _pick(self, message: ProbeTable.Picked) -> None:
        self._act(replace(self.board, cursor=message.probe_id))

    def _act(self, board: Board) -> None:
        """What the operator did is painted at once; only the feed has to wait."""
        self.board = board
        self.paint()

    def action_read(self) -> None:
        """Give the whole screen to the detail."""
        if self.chosen is not None:
            self.add_class("-reading")
            self.remove_class("-listing")
            self.query_one("#detail-text", LineView).focus()

    def action_back(self) -> None:
        """Leave the innermost thing first: typing, reading, the filter, the faults."""
        if self.has_class("-filtering"):
            self.query_one("#filter", Input).value = ""
            self._leave_filter()
        elif self.has_class("-reading"):
            self.remove_class("-reading")
            self.query_one(ProbeTable).focus()
        elif self.board.filter_text:
            self.query_one("#filter", Input).value = ""
        elif self.board.faults_only:
            self._act(replace(self.board, faults_only=False))

    def action_toggle_detail(self) -> None:
        """Show the list alone in all columns, or with the detail."""
        if not self.has_class("-reading"):
            self.toggle_class("-listing")
            self.query_one(ProbeTable).focus()

    def action_other_pane(self) -> None:
        """Move between list and detail, to scroll either."""
        reader, table = self.query_one("#detail-text", LineView), self.query_one(ProbeTable)
        if not any(self.has_class(alone) for alone in ("-reading", "-listing", "-filtering")):
            (table if reader.has_focus else reader).focus()

    def action_filter(self) -> None:
        """Type a filter; the last one is there to be changed."""
        self.add_class("-filtering")
        self.query_one("#filter", Input).focus()

    @on(Input.Changed, "#filter")
    def _filter_typed(self, event: Input.Changed) -> None:
        board = replace(self.board, filter_text=clean_line(event.value, MAX_FILTER_CHARS))
        rows = visible(board, moment_of(board, self._clock()))
        self._act(moved(board, rows, 0))

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self._leave_filter()

    def _leave_filter(self) -> None:
        self.remove_class("-filtering")
        self.query_one(ProbeTable).focus()

    def action_next_fault(self) -> None:
        """Go to the next probe that the line on top speaks of, or say why there is none."""
        moment = moment_of(self.board, self._clock())
        if (hint := next_hint(self.board, moment)) is not None:
            self.notify(hint, markup=False, timeout=3)
        self._act(next_asking(self.board, moment))

    def action_faults(self) -> None:
        """List only what asks for the operator, or everything again."""
        board = replace(self.board, faults_only=not self.board.faults_only)
        self._act(moved(board, visible(board, moment_of(board, self._clock())), 0))

    async def action_log(self) -> None:
        """Open the log of the latest attempt."""
        if (view := self.chosen) is not None:
            await self.app.push_screen(LogScreen(self._desk, view))

    def action_copy_id(self) -> None:
        """Copy the chosen id through the terminal."""
        if (view := self.chosen) is not None:
            self._copy(view.id)

    def action_copy_command(self) -> None:
        """Copy the command that shows the same."""
        if (view := self.chosen) is not None:
            self._copy(command_for(view))

    def _copy(self, text: str) -> None:
        safe = clean_line(text)
        self.app.copy_to_clipboard(safe)
        self.notify(f"copied: {safe}", markup=False, timeout=3)

    async def action_cancel(self) -> None:
        """Ask before a cancel, or say why there is none."""
        view = self.chosen
        offer = cancel_offer(self.board, view)
        if view is None or offer.reason is not None:
            self.notify(f"No cancel: {offer.reason}.", severity="warning", markup=False, timeout=5)
            return
        await self.app.push_screen(CancelScreen(view, offer.effect), partial(self._cancel_answered, view.id))

    def _cancel_answered(self, probe_id: str, reason: str | None) -> None:
        if reason is not None:
            self._send_cancel(probe_id, reason)
            return
        # A No that was meant as a yes must be seen: enter stands on No, also after the characters were typed.
        picture = self.board.picture
        self.notify(kept_hint(picture.probes.get(probe_id) if picture else None), markup=False, timeout=5)

    @work(group="cancel", exit_on_error=False)
    async def _send_cancel(self, probe_id: str, reason: str) -> None:
        try:
            await self._desk.cancel(probe_id, reason)
        except ModelForgeError as error:
            if error.code is ErrorCode.PERMISSION_DENIED:
                self._change(replace(self.board, refusal=f"{error.message}: read-only"))
            text = status.refusal_text(error.code, error.message)
            self.notify(text, title="Not cancelled", severity="error", markup=False, timeout=10)
        else:
            self.notify(clean_line(f"Cancel of {probe_id} accepted."), markup=False, timeout=5)
