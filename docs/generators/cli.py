"""docs/reference/cli.md: every command of `modelforge`, read from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from bus.errors import Exit
from docs.generators import markdown as md
from modelforge.cli.main import root

_TOLD: Final = re.compile(r"\s+\[([^\]]+)\]$")


def render() -> str:
    """The page."""
    intro = (
        "Results go to stdout, everything else to stderr. With `--json` each result is one JSON document. An error says what "
        "happened, why, and what to type next; its code is in [errors](errors.md), and the exit code is an interface: "
        + ", ".join(f"{md.code(exit_.value)} {exit_.name.lower().replace('_', ' ')}" for exit_ in Exit)
        + "."
    )
    blocks = [intro]
    for path, command in _walk(click.Context(root, info_name="modelforge"), root):
        blocks.extend(_command(path, command))
    return md.page("Command line", *blocks)


def _walk(context: click.Context, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path, command
        if isinstance(command, click.Group):
            yield from _walk(inner, command)


def _command(path: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=path)
    pieces = " ".join([path, *command.collect_usage_pieces(context)])
    blocks = [f"## {path}", _text(command.help or ""), f"```text\n{pieces}\n```"]
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    rows = [(_spelling(option), *_default(option)) for option in options]
    if rows:
        blocks.append(md.table(("option", "default", "what it does"), rows))
    return [block for block in blocks if block]


def _text(text: str) -> str:
    paragraphs = text.replace("\b", "").split("\n\n")
    return "\n\n".join(md.one_line(paragraph) for paragraph in paragraphs if paragraph.strip())


def _spelling(option: click.Option) -> str:
    names = ", ".join(md.code(name) for name in (*option.opts, *option.secondary_opts))
    if option.is_flag or option.count:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {', '.join(md.code(choice) for choice in option.type.choices)}"
    return f"{names} {option.metavar or option.type.name.removesuffix(' range').upper()}"


def _default(option: click.Option) -> tuple[str, str]:
    """The default as `--help` shows it, and the help without it.

    Where the default is made elsewhere, the help itself tells it, in brackets at its end.
    """
    words = option.help or ""
    if option.required:
        return "**required**", words
    if told := _TOLD.search(words):
        return told[1], words[: told.start()]
    if not option.show_default:
        return "", words
    if option.is_flag and option.secondary_opts:
        return md.code((option.opts if option.default else option.secondary_opts)[0]), words
    return md.code(f"{option.default:g}" if isinstance(option.default, float) else option.default), words
