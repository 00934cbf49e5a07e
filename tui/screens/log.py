"""The bounded log of one attempt (spec P12), whole: the filter looks at every line that was kept."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.api import LogView
from bus.messages.gates import ProbeView
from bus.text import clean_line, clean_text
from tui.desk import Desk
from tui.detail import failure_lines
from tui.format import size, stamp
from tui.hints import no_log_hint
from tui.lines import BLANK, Line, Span, Tone, line, span
from tui.status import keys_line
from tui.widgets.line_view import LineBar, WideReader

MAX_LOG_CHARS: Final = 4_000_000
_NUMBER_CELLS: Final = 5


class LogScreen(Screen[None]):
    """Reads; scrolls sideways instead of wrapping, so that no column moves."""

    CSS = """
    LogScreen {
        #title { background: $panel; }
        #filter { display: none; height: 1; border: none; padding: 0 1; background: $boost; }
        &.-filtering #filter { display: block; }
        &.-filtering #keys { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "back, or clear the filter", id="log.back"),
        Binding("slash", "filter", "filter all lines", key_display="/", id="log.filter"),
        Binding("left_square_bracket", "attempt(-1)", "the attempt before", key_display="[", id="log.earlier"),
        Binding("right_square_bracket", "attempt(1)", "the next attempt", key_display="]", id="log.later"),
        Binding("r", "reload", "ask again", id="log.reload"),
        Binding("Y", "copy_command", "copy the command that shows the same", id="log.copy-command"),
    ]

    def __init__(self, desk: Desk, view: ProbeView) -> None:
        super().__init__()
        self._desk = desk
        self._view = view
        self._attempt = max(view.attempt, 1)
        self._log: LogView | None = None
        self._failure: Failure | None = None
        self._not_there: str | None = None
        self._filter = ""
        self._ready: list[tuple[str, Line]] = []

    def compose(self) -> ComposeResult:
        """Title, text, keys."""
        yield LineBar(id="title")
        yield WideReader(id="text")
        yield LineBar(id="keys")
        yield Input(id="filter", placeholder="part of a line", max_length=80)

    def on_mount(self) -> None:
        """Ask for the log."""
        keys = (("/", "filter", True), ("[ ]", "attempt", self._view.attempt > 1), ("r", "ask again", True))
        self.query_one("#keys", LineBar).set_lines([keys_line((*keys, ("esc", "back", True)))])
        self.query_one("#text", WideReader).focus()
        self._load()

    def on_resize(self) -> None:
        """Wrap again; the first width is known only after the first layout."""
        self.call_after_refresh(self._paint)

    @work(exclusive=True, group="log", exit_on_error=False)
    async def _load(self) -> None:
        self._log = self._failure = self._not_there = None
        self._paint()
        try:
            self._log = await self._ask()
        except ModelForgeError as error:
            self._failure = error.to_failure()
        if self._log is not None:
            self._ready = _prepare(self._log.text)
        self._paint()

    async def _ask(self) -> LogView | None:
        """The log; or none, with the reason noted: a probe that has no log yet is under way, not at fault."""
        try:
            return await self._desk.log(self._view.id, self._attempt)
        except ModelForgeError as error:
            if error.code is not ErrorCode.UNKNOWN_ID:
                raise
        self._view = await self._desk.show(self._view.id)  # it may have gone on since this screen was opened
        self._not_there = no_log_hint(self._view, self._attempt)
        return None

    def _paint(self) -> None:
        text = self.query_one("#text", WideReader)
        lines, shown, total = self._content(text.size.width)
        head = [
            span(" log ", Tone.STRONG),
            span(f"{self._view.id} attempt {self._attempt} of {max(self._view.attempt, 1)}"),
        ]
        if self._log is not None:
            if self._filter:
                head.append(span(f"  /{self._filter} {shown} of {total} lines", Tone.WARN))
            head.append(span(f"  {stamp(self._log.at)} UTC  {self._log.ref}", Tone.DIM))
        self.query_one("#title", LineBar).set_lines([line(*head)])
        text.set_lines(lines)

    def _content(self, width: int) -> tuple[list[Line], int, int]:
        """The lines to show, how many log lines are among them, and how many there are."""
        if self._failure is not None:
            failed = failure_lines(self._failure, width - 2, self._view.id)
            return [BLANK, *((Span(" ", Tone.TEXT), *content) for content in failed)], 0, 0
        if self._not_there is not None:
            return [BLANK, line(" ", span(self._not_there)), line(" ", span("r asks again.", Tone.DIM))], 0, 0
        if self._log is None:
            return [line(span(" asking the controller …", Tone.DIM))], 0, 0
        wanted = self._filter.casefold()
        chosen = [content for folded, content in self._ready if wanted in folded]
        head: list[Line] = []
        if self._log.dropped_bytes:
            cut = f" {size(self._log.dropped_bytes)} of this log were dropped: it is bounded"
            head.append(line(span(cut, Tone.WARN)))
        return [*head, *chosen] or [line(span(" the log is empty", Tone.DIM))], len(chosen), len(self._ready)

    def action_back(self) -> None:
        """Leave the filter first, then the screen."""
        if self._filter or self.has_class("-filtering"):
            self.query_one("#filter", Input).value = ""
            self._leave_filter()
        else:
            _ = self.dismiss(None)

    def action_filter(self) -> None:
        """Type a filter."""
        self.add_class("-filtering")
        self.query_one("#filter", Input).focus()

    @on(Input.Changed, "#filter")
    def _filter_typed(self, event: Input.Changed) -> None:
        self._filter = clean_line(event.value, 80)
        self._paint()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self._leave_filter()

    def _leave_filter(self) -> None:
        self.remove_class("-filtering")
        self.query_one("#text", WideReader).focus()

    def action_attempt(self, step: int) -> None:
        """Another attempt's log."""
        attempt = min(max(self._attempt + step, 1), max(self._view.attempt, 1))
        if attempt != self._attempt:
            self._attempt = attempt
            self._load()

    def action_reload(self) -> None:
        """Ask again."""
        self._load()

    def action_copy_command(self) -> None:
        """Copy the command."""
        command = clean_line(f"modelforge probe log {self._view.id} --attempt {self._attempt}")
        self.app.copy_to_clipboard(command)
        self.notify(f"copied: {command}", markup=False, timeout=3)


def _prepare(text: str) -> list[tuple[str, Line]]:
    """Every line once for looking and once for showing, numbered, so that a filter costs no cleaning."""
    result: list[tuple[str, Line]] = []
    for number, content in enumerate(clean_text(text, MAX_LOG_CHARS).splitlines(), 1):
        folded = content.casefold()
        shown = (Span(f"{number:>{_NUMBER_CELLS}} ", Tone.DIM), span(content, _tone(folded)))
        result.append((folded, shown))
    return result


def _tone(folded: str) -> Tone:
    """Lines that name a trouble are marked; the words are there to read anyway."""
    if any(word in folded for word in ("error", "traceback", "fatal", "violation")):
        return Tone.BAD
    return Tone.WARN if "warn" in folded else Tone.TEXT
