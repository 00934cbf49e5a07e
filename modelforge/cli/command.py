"""What every command has: the common options, and the `App` that is made of them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from modelforge.cli.output import Output

if TYPE_CHECKING:
    from bus.settings import ClientSettings

_PANEL: Final = "Common options"
_COMMON: Final = ("as_json", "no_color", "state", "config")
_CONNECTION: Final = ("url", "credentials", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The common options of one call.

    Attributes:
        out: the two streams.
        state: the state folder; may not exist yet.
        named_state: was the state folder given by flag? Then the next command needs it too.
        config: the configuration file in use, or `None`.
        flags: values of the connection flags, `None` where not given.
    """

    out: Output
    state: Path
    named_state: bool
    config: Path | None
    flags: dict[str, str | None] = field(default_factory=dict)

    def next(self, *commands: str) -> None:
        """Suggest what to type now, so that it works when it is copied."""
        self.out.next(*(self.whole(command) for command in commands))

    def whole(self, command: str) -> str:
        """A command as `next` says it."""
        return f"{command} --state {shlex.quote(str(self.state))}" if self.named_state else command

    def client(self) -> ClientSettings:
        """How to reach the controller: defaults, file, variables, flags, then what `modelforge up` wrote.

        Raises:
            ModelForgeError: CONFIG_UNREADABLE, CONFIG_INVALID, or NOT_CONNECTED when nothing says where it is.
        """
        from bus.operator import resolve_client  # noqa: PLC0415 -- imports nats
        from bus.settings import ClientSettings, load  # noqa: PLC0415 -- lazy: `--help` stays quick

        loaded = load(ClientSettings, "client", file=self.config, flags=self.flags)
        return resolve_client(loaded.value, self.state)


def _common_options() -> list[click.Parameter]:
    return [
        click.RichOption(["--json", "as_json"], is_flag=True, help="Print one JSON document.", panel=_PANEL),
        click.RichOption(["--no-color"], is_flag=True, help="Plain text, as with NO_COLOR.", panel=_PANEL),
        click.RichOption(
            ["--state"],
            type=click.Path(path_type=Path),
            metavar="DIR",
            panel=_PANEL,
            help="State folder (default: the platform's, or MODELFORGE_STATE).",
        ),
        click.RichOption(
            ["--config"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            panel=_PANEL,
            help="Configuration file (default: the platform's, or MODELFORGE_CONFIG).",
        ),
    ]


def _connection_options() -> list[click.Parameter]:
    return [
        click.RichOption(["--url"], metavar="URL", help="NATS server to dial.", panel=_PANEL),
        click.RichOption(["--credentials"], metavar="FILE", help="File with an NKey seed.", panel=_PANEL),
        click.RichOption(["--user"], metavar="NAME", help="User that the key belongs to.", panel=_PANEL),
    ]


class LocalCommand(click.RichCommand):
    """A command that needs no controller."""

    options = staticmethod(_common_options)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The command's own options first: they are why somebody asks for help.
        panels: list[click.RichPanel[Any, Any]] = [click.RichOptionPanel("Options"), click.RichOptionPanel(_PANEL)]
        super().__init__(*args, panels=panels, **kwargs)
        self.params.extend(type(self).options())

    def invoke(self, ctx: click.Context) -> Any:
        """Take the common options out of the parameters and hand the command an `App`."""
        from bus.settings import config_file, state_folder  # noqa: PLC0415 -- not needed for --help

        taken = {name: ctx.params.pop(name, None) for name in (*_COMMON, *_CONNECTION)}
        ctx.obj = App(
            out=Output(as_json=bool(taken["as_json"]), no_color=bool(taken["no_color"])),
            state=(taken["state"] or state_folder()).expanduser().resolve(),
            named_state=taken["state"] is not None,
            config=taken["config"] or config_file(),
            flags={name: taken[name] for name in _CONNECTION},
        )
        try:
            return super().invoke(ctx)
        finally:
            ctx.obj.out.settle()


class Command(LocalCommand):
    """A command that talks to the controller."""

    options = staticmethod(lambda: [*_common_options(), *_connection_options()])
