"""Command groups that import a command's module only when the command is really called.

`modelforge --help` lists every command; importing them all for that would load the bus, the message types and, with
some, Textual. So the table carries the short help itself, and a listing is drawn from stubs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import rich_click as click


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives (`module:attribute`) and what the listing says about it."""

    target: str
    help: str


class LazyGroup(click.RichGroup):
    """A group whose commands are named in a table and imported on use."""

    def __init__(self, *args: Any, entries: dict[str, Entry] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table: the order in which a newcomer needs them."""
        return [*self.entries, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A stub with name and short help, for listings and completion."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        return click.RichCommand(name=cmd_name, help=entry.help, short_help=entry.help)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The real command: its module is imported here and nowhere else."""
        name, command, rest = super().resolve_command(ctx, args)
        entry = self.entries.get(name or "")
        if entry is not None:
            module, attribute = entry.target.split(":")
            command = getattr(import_module(module), attribute)
        return name, command, rest


class DefaultGroup(click.RichGroup):
    """A group that is also a verb: `assess SET` means `assess create SET`.

    There is no ambiguity: a set is named by hex digits, which no subcommand's name consists of.
    """

    def __init__(self, *args: Any, default: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default's name in front unless a subcommand or the group's help is asked for."""
        names = (*self.commands, *ctx.help_option_names)
        if args and args[0] not in names and not ctx.resilient_parsing:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
