"""The edge of the process: every way to fail becomes three lines, one envelope and one exit code; never a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bus.text import clean_line
from modelforge.cli.output import columns, render_json, wants_color
from modelforge.format import wrap

if TYPE_CHECKING:
    from bus.errors import ModelForgeError

_EXIT_OK: Final = 0
_WORDS_FROM: Final = len("  next: ")


def run(main: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> int:
    """Call `main` and return the exit code of the process (see `bus.errors.Exit`)."""
    try:
        code = main(arguments)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except BrokenPipeError:
        return _reader_left()
    except BaseException as error:  # this is the edge: nothing may pass it as a traceback
        if isinstance(error, SystemExit):
            raise
        return _report(error, arguments)
    return code if isinstance(code, int) and not isinstance(code, bool) else _EXIT_OK


def _reader_left() -> int:
    """`modelforge … | head` ends well: nobody wants the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _EXIT_OK


def _report(error: BaseException, arguments: Sequence[str]) -> int:
    from bus.errors import ModelForgeError  # noqa: PLC0415 -- only a failure needs the table

    problem = error if isinstance(error, ModelForgeError) else _translate(error, arguments)
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in flags:
        click.echo(render_json("error", describe(problem)))
    colored = wants_color(sys.stderr, no_color="--no-color" in flags)
    wide = columns() if sys.stderr.isatty() else None
    click.echo(explain(problem, color=colored, wide=wide), err=True, color=colored)
    return int(problem.info.exit)


def _translate(error: BaseException, arguments: Sequence[str]) -> ModelForgeError:
    from bus.errors import ErrorCode, ModelForgeError  # noqa: PLC0415 -- lazy: `--help` stays quick

    if isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
        return ModelForgeError(ErrorCode.INTERRUPTED, "interrupted")
    if isinstance(error, click.exceptions.ClickException):
        context = getattr(error, "ctx", None)
        hint = f"Type `{context.command_path} --help`." if context else None
        return ModelForgeError(ErrorCode.INVALID_ARGUMENT, error.format_message(), hint=hint)
    if isinstance(error, UnicodeEncodeError) and (strange := _not_utf8(arguments)):
        # Such an argument may name a file of this machine, but nothing that is sent or printed.
        return ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"the argument {strange} is not UTF-8")
    path = _write_traceback(error, arguments)
    where = str(path) if path else "no log file could be written"
    return ModelForgeError(ErrorCode.INTERNAL, f"unexpected {type(error).__name__}", log=where)


def _not_utf8(arguments: Sequence[str]) -> str | None:
    """The first argument with bytes that are no text, readable."""
    return next((ascii(one) for one in arguments if any("\ud800" <= character <= "\udfff" for character in one)), None)


def _write_traceback(error: BaseException, arguments: Sequence[str]) -> Path | None:
    """Keep the traceback in a file of its own, redacted; the screen gets the file's name only."""
    import tempfile  # noqa: PLC0415 -- lazy: `--help` stays quick
    from datetime import UTC, datetime  # noqa: PLC0415 -- lazy: `--help` stays quick

    from bus.settings import state_folder  # noqa: PLC0415 -- lazy: `--help` stays quick
    from bus.text import redact  # noqa: PLC0415 -- lazy: `--help` stays quick

    text = f"modelforge {' '.join(arguments)}\n\n{''.join(traceback.format_exception(error))}"
    name = f"error-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.log"
    for folder in (state_folder() / "logs", Path(tempfile.gettempdir())):
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(redact(text), encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return path
    return None


def exit_of(code: str) -> int:
    """The documented exit code of a failure's code; 1 for a code that this version does not know."""
    from bus.errors import CODES, Exit  # noqa: PLC0415 -- only a failure needs the table

    known = {known.value: info.exit for known, info in CODES.items()}
    return int(known.get(code, Exit.FAILED))


def describe(problem: ModelForgeError) -> dict[str, object]:
    """The data of the error envelope."""
    return {
        "code": problem.code.value,
        "message": problem.message,
        "context": problem.context,
        "meaning": problem.info.meaning,
        "hint": problem.hint,
        "retry": problem.info.retry.value,
        "exit": int(problem.info.exit),
    }


def explain(problem: ModelForgeError, *, color: bool = False, wide: int | None = None) -> str:
    """Three lines: what happened, why, and what to type next; with `wide`, each in lines of so many columns."""
    facts = ", ".join(f"{name}={value}" for name, value in problem.context.items())
    head = f"error: {problem.code}: {problem.message}"
    why = f"  why:  {problem.info.meaning}" + (f" ({facts})" if facts else "")
    then = f"  next: {clean_line(problem.hint)}"
    if wide is not None:
        head = "\n".join(wrap(head, wide, rest=" " * len("error: ")))
        why, then = ("\n".join(_indented(line, wide)) for line in (why, then))
    styled = click.style(head, fg="red", bold=True) if color else head
    return f"{styled}\n{why}\n{then}"


def _indented(line: str, wide: int) -> list[str]:
    """A line of `explain` at `wide` columns: its words keep to the right of its name."""
    return wrap(line[_WORDS_FROM:], wide, first=line[:_WORDS_FROM], rest=" " * _WORDS_FROM)
