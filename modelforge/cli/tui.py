"""`modelforge tui`: the operator's screen."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import rich_click as click

from bus.errors import ErrorCode, ModelForgeError
from modelforge.cli.command import App, Command
from modelforge.extras import install_hint


class _ScreenCommand(Command):
    """A screen has no JSON form: the option is refused with a hint, so help does not offer it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for option in self.params:
            if isinstance(option, click.Option) and option.name == "as_json":
                option.hidden = True


@click.command(cls=_ScreenCommand)
@click.pass_obj
def tui(app: App) -> int:
    """Open the operator's screen: probes live, with phases, evidence and failures."""
    if app.out.as_json:
        message = "a screen has no JSON form"
        hint = "Use `modelforge probe watch --json`."
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint=hint)
    if find_spec("textual") is None:
        message = "the package textual is not installed"
        raise ModelForgeError(ErrorCode.DEPENDENCY_MISSING, message, hint=install_hint("tui"))
    settings = app.client()
    from tui.app import run  # noqa: PLC0415 -- Textual is loaded by this command alone

    return run(settings)
