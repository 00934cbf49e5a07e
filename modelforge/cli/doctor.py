"""`modelforge doctor`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import rich_click as click

from bus.errors import Exit, ModelForgeError
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.doctor import Check, local_checks

if TYPE_CHECKING:
    from bus.settings import ClientSettings

_STYLE: Final = {"ok": "ok", "warn": "warn", "fail": "fail"}
_LEVEL_COLUMNS: Final = 4


@click.command(cls=Command)
@click.pass_obj
def doctor(app: App) -> int:
    """Check this machine and the running stack; each finding comes with the command that mends it.

    Exit 1 when a check fails.
    """
    checks = [*local_checks(app.state, app.config, runs_here=_runs_here(app)), *_stack_checks(app)]
    app.out.result("doctor", checks, lambda: "\n".join(_line(app, check) for check in checks))
    failed = [check for check in checks if check.level == "fail"]
    warned = sum(check.level == "warn" for check in checks)
    app.out.note(f"{text.count(len(checks), 'check')}: {len(failed)} failed, {warned} with a warning")
    return Exit.FAILED if failed else Exit.OK


def _runs_here(app: App) -> bool:
    """Is the stack ours to run? Not where file, variable or flag name a server to dial."""
    from bus.settings import ClientSettings, load  # noqa: PLC0415 -- as for every command, not for --help

    try:
        return not load(ClientSettings, "client", file=app.config, flags=app.flags).value.url
    except ModelForgeError:  # the check of the configuration tells it
        return True


def _stack_checks(app: App) -> list[Check]:
    """The running stack's, or the one finding that says why it cannot be asked."""
    from modelforge.doctor_stack import stack_checks  # noqa: PLC0415 -- imports nats

    try:
        settings: ClientSettings = app.client()
    except ModelForgeError as error:
        return [Check(name="stack", level="fail", detail=f"{error.code}: {error.message}", fix=error.hint)]
    return asyncio.run(stack_checks(settings))


def _line(app: App, check: Check) -> str:
    level = app.out.style(text.pad(check.level, _LEVEL_COLUMNS), _STYLE[check.level])
    line = f"{level}  {check.name}: {check.detail}"
    return f"{line}\n      fix: {check.fix}" if check.fix else line
