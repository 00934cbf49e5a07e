"""docs/reference/cli.md: every command of `modelforge`, read from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bus.errors import Exit
from docs.generators import markdown as md
from modelforge.cli.main import root


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
    rows = [(_spelling(option), option.help or "") for option in command.params if isinstance(option, click.Option)]
    if rows:
        blocks.append(md.table(("option", "what it does"), rows))
    return [block for block in blocks if block]


def _text(text: str) -> str:
    paragraphs = text.replace("\b", "").split("\n\n")
    return "\n\n".join(md.one_line(paragraph) for paragraph in paragraphs if paragraph.strip())


def _spelling(option: click.Option) -> str:
    names = ", ".join(md.code(name) for name in (*option.opts, *option.secondary_opts))
    if option.is_flag or option.count:
        return names
    return f"{names} {option.metavar or option.type.name.removesuffix(' range').upper()}"
