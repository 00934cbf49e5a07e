"""`modelforge config show`: every value and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import rich_click as click

from bus.errors import ErrorCode, ModelForgeError
from bus.settings import read_file
from modelforge.cli.command import App, LocalCommand
from modelforge.settings import all_sections, toml_value
from modelforge.state import StateFolder

if TYPE_CHECKING:
    from bus.settings import Loaded

# What `up` writes at its start, by section.
_RUN_FILES: Final = {"controller": "controller.toml", "node": "node.toml", "server": "up.toml", "up": "up.toml"}


@click.group()
def config() -> None:
    """Show every setting and where it comes from."""


@config.command(cls=LocalCommand)
@click.pass_obj
def show(app: App) -> None:
    """Print every section as TOML, each value with its origin. Unknown keys are errors, never ignored."""
    sections = with_origins(all_sections(app.config, app.state))
    resolve_endpoint(sections["client"], app)
    show_running(sections, StateFolder(app.state))
    facts = {"file": str(app.config) if app.config else None, "state": str(app.state), "sections": sections}
    app.out.result("config", facts, lambda: _document(app, sections))


def with_origins(loaded: dict[str, Loaded[Any]]) -> dict[str, dict[str, dict[str, object]]]:
    """Section -> key -> value and origin."""
    return {
        name: {
            key: {"value": value, "origin": section.origins[key]}
            for key, value in msgspec.structs.asdict(section.value).items()
        }
        for name, section in loaded.items()
    }


def resolve_endpoint(client: dict[str, dict[str, object]], app: App) -> None:
    """Show what a command would really dial: the running `up` of this state folder fills what nobody set."""
    from bus.operator import resolve_client  # noqa: PLC0415 -- imports nats
    from bus.settings import ClientSettings  # noqa: PLC0415 -- lazy: `--help` stays quick

    unset = ClientSettings(**{key: entry["value"] for key, entry in client.items()})  # type: ignore[arg-type]
    try:
        resolved = msgspec.structs.asdict(resolve_client(unset, app.state))
    except ModelForgeError as error:
        if error.code is not ErrorCode.NOT_CONNECTED:
            raise
        return
    endpoint = StateFolder(app.state).endpoint
    for key, value in resolved.items():
        if value != client[key]["value"]:
            client[key] = {"value": value, "origin": f"file {endpoint}, written by `modelforge up`"}


def show_running(sections: dict[str, dict[str, dict[str, object]]], state: StateFolder) -> None:
    """Show what the running `up` of this state folder really uses: its flags are in no file of ours but these.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE, CONFIG_INVALID for a damaged file.
    """
    if not state.endpoint.exists():
        return
    for name, file in _RUN_FILES.items():
        path = state.run / file
        values = read_file(path).get(name, {}) if path.exists() else {}
        for key, value in values.items():
            entry = sections[name].get(key)
            if entry is not None and _plain(entry["value"]) != value:
                sections[name][key] = {"value": value, "origin": f"file {path}, written by `modelforge up`"}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _document(app: App, sections: dict[str, dict[str, dict[str, object]]]) -> str:
    file = f"file: {app.config}" if app.config else "no configuration file"
    blocks = [f"# {file}\n# state folder: {app.state}"]
    for name, values in sections.items():
        lines = [f"{key} = {toml_value(entry['value'])}  # {entry['origin']}" for key, entry in values.items()]
        blocks.append("\n".join([app.out.style(f"[{name}]", "heading"), *lines]))
    return "\n\n".join(blocks)
