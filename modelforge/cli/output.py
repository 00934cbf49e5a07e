"""What goes to which stream: results on stdout, talk on stderr, JSON in one envelope.

The envelope is `{"schema": "modelforge.<noun>/v1", "data": ...}`. A command prints one; `watch` prints one per line.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TextIO

import click

from bus.text import clean_line, clean_text
from modelforge.format import fit, width, wrap

_CLEAR_LINE: Final = "\r\x1b[2K"
_SPINNER: Final = "|/-\\"
_SPIN_PER_S: Final = 8
_BAR_COLUMNS: Final = 16
_COLUMNS_MIN: Final = 20
# Text is wrapped at the terminal's width, but not into lines that no eye follows, nor into a stack of single words.
_TEXT_COLUMNS_MIN: Final = 40
_TEXT_COLUMNS_MAX: Final = 120
SCHEMA_VERSION: Final = 1
NEXT: Final = "next: "

STYLES: Final[dict[str, dict[str, Any]]] = {
    "error": {"fg": "red", "bold": True},
    "ok": {"fg": "green"},
    "warn": {"fg": "yellow"},
    "fail": {"fg": "red"},
    "heading": {"bold": True},
    "quiet": {"dim": True},
}


def wants_color(stream: TextIO, *, no_color: bool, variables: Mapping[str, str] | None = None) -> bool:
    """Colour only for a terminal that shows it to somebody who did not decline (`NO_COLOR`, `TERM=dumb`)."""
    environment = os.environ if variables is None else variables
    if no_color or environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def columns() -> int:
    """Columns that text may take: the terminal's, within bounds; 80 where there is none."""
    return max(_TEXT_COLUMNS_MIN, min(shutil.get_terminal_size().columns, _TEXT_COLUMNS_MAX))


def envelope(noun: str, data: object) -> dict[str, object]:
    """The one JSON shape of all commands."""
    return {"schema": f"modelforge.{noun}/v{SCHEMA_VERSION}", "data": data}


def render_json(noun: str, data: object, *, pretty: bool = False) -> str:
    """The envelope as text: one line, or indented for a person."""
    import msgspec  # noqa: PLC0415 -- not needed for --help

    encoded = msgspec.json.encode(envelope(noun, data))
    return (msgspec.json.format(encoded, indent=2) if pretty else encoded).decode()


class Progress:
    """Phase words on stderr: one rewritten line on a terminal, one plain line per phase elsewhere.

    A `passing` one leaves no trace: it only shows that something goes on, beside lines that tell the phases anyway.
    """

    def __init__(self, stream: TextIO, *, animate: bool, passing: bool = False) -> None:
        self._stream = stream
        self._animate = animate
        self._passing = passing
        self._line = ""
        self._detail = ""
        self._tenths = 0
        self._since = time.monotonic()

    def phase(self, words: str) -> None:
        """A new phase begins; saying the same again does nothing."""
        words = clean_line(words)
        if words == self._line:
            return
        if self._animate:
            self.finish()
        self._line, self._since = words, time.monotonic()
        self._detail, self._tenths = "", 0
        if self._animate:
            self.tick()
        elif not self._passing:
            self._write(f"{words}\n")

    def measure(self, words: str, done: int, total: int, detail: str) -> None:
        """How far a phase is: a bar on a terminal, a plain line for each tenth elsewhere; no bar without a `total`."""
        self.phase(words)
        share = min(1.0, done / total) if total > 0 else 0.0
        if self._animate:
            filled = int(share * _BAR_COLUMNS)
            bar = f"[{'#' * filled}{'.' * (_BAR_COLUMNS - filled)}] {share:.0%} "
            self._detail = f"{bar if total > 0 else ''}{detail}"
            self.tick()
        elif not self._passing and int(share * 10) > self._tenths:
            self._tenths = int(share * 10)
            self._write(f"{self._line}: {share:.0%} {detail}\n")

    def tick(self) -> None:
        """Redraw the running line; free to call often, silent where there is no terminal."""
        if self._animate and self._line:
            elapsed_s = time.monotonic() - self._since
            mark = _SPINNER[int(time.monotonic() * _SPIN_PER_S) % len(_SPINNER)]
            self._write(f"{_CLEAR_LINE}{self._fitting(f'{mark} {self._line}{self._shown_detail()}', elapsed_s)}")

    def _shown_detail(self) -> str:
        return f" {self._detail}" if self._detail else ""

    @staticmethod
    def _fitting(line: str, elapsed_s: float) -> str:
        """A line that wraps cannot be rewritten: only its last row would be. The time at its end is never cut."""
        elapsed = f" {elapsed_s:.1f} s"
        room = max(_COLUMNS_MIN, shutil.get_terminal_size().columns - 1)
        return f"{fit(line, max(1, room - len(elapsed)))}{elapsed}"

    def aside(self, words: str) -> None:
        """A line of its own, told also where no phase is; the running line goes on below it."""
        self._write(f"{_CLEAR_LINE if self._animate else ''}{words}\n")
        self.tick()

    def finish(self) -> None:
        """Leave the running line on the screen and go below it; a passing one is wiped away."""
        if self._animate and self._line:
            elapsed_s = time.monotonic() - self._since
            self._write(_CLEAR_LINE if self._passing else f"{_CLEAR_LINE}  {self._line} {elapsed_s:.1f} s\n")
        self._line = self._detail = ""

    def _write(self, text: str) -> None:
        # A terminal that went away must not keep a stack from being stopped in order.
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool = False, no_color: bool = False) -> None:
        self.as_json = as_json
        self.color = wants_color(sys.stdout, no_color=no_color)
        self._talk_color = wants_color(sys.stderr, no_color=no_color)
        animate = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.progress = Progress(sys.stderr, animate=animate)
        self.spinner = Progress(sys.stderr, animate=animate, passing=True)

    def style(self, text: str, style: str) -> str:
        """`text` in a style of stdout, or as it is."""
        return click.style(text, **STYLES[style]) if self.color else text

    def result(self, noun: str, data: object, text: Callable[[], str]) -> None:
        """The command's one result: the envelope, or what `text` makes of it."""
        self.settle()
        if self.as_json:
            click.echo(render_json(noun, data, pretty=sys.stdout.isatty()))
        else:
            click.echo(text(), color=self.color)

    def line(self, noun: str, data: object, text: Callable[[], str]) -> None:
        """One of many results: a JSON line, or a line of text; flushed at once for pipes."""
        self.settle()
        click.echo(render_json(noun, data) if self.as_json else text(), color=self.color)

    def note(self, text: str, style: str | None = None) -> None:
        """Talk, on stderr; whoever's names are in it, it drives no terminal."""
        self.settle()
        text = self._wrapped(clean_text(text))
        styled = click.style(text, **STYLES[style]) if style and self._talk_color else text
        # A terminal that went away must not keep a stack from being stopped in order.
        with suppress(OSError):
            click.echo(styled, err=True, color=self._talk_color)

    @staticmethod
    def _wrapped(said: str) -> str:
        """A sentence at the terminal's width; a command that is to be copied, and several lines, stay as they are."""
        if not sys.stderr.isatty() or said.startswith(NEXT) or "\n" in said or width(said) <= columns():
            return said
        indent = " " * (len(said) - len(said.lstrip(" ")))
        return "\n".join(wrap(said, columns(), first=indent, rest=f"{indent}  "))

    def settle(self) -> None:
        """End the running line, so that what comes next begins a line; an error's words too."""
        self.progress.finish()
        self.spinner.finish()

    def next(self, *commands: str) -> None:
        """The commands that make sense now, on stderr, ready to be copied."""
        for command in commands:
            self.note(f"{NEXT}{command}", "quiet")

    def truncated(self, reply: object, shown: int, limit: int) -> None:
        """Say when a list is empty, or was cut by the limit that was asked for or by the controller's own bound."""
        if not shown:
            self.note("there is none yet", "quiet")
        if not getattr(reply, "truncated", shown >= limit):
            return
        more = "; --limit shows more" if shown >= limit else "; this is as much as one answer holds"
        newest = "the newest one is" if shown == 1 else f"the newest {shown} are"
        self.note(f"{newest} shown{more}", "warn")
