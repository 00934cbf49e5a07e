"""The command line starts fast: help imports no bus, no Textual, no model library."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import click
import pytest

from modelforge.cli.main import COMMANDS, root

_HEAVY = (
    "nats",
    "textual",
    "torch",
    "transformers",
    "numpy",
    "sentence_transformers",
    "aiosqlite",
    "bus.messages",
    "bus.client",
    "controller",
    "node_agent",
    "adapters",
    "tui",
    "msgspec",
)
_SCRIPT = """
import json, sys
from modelforge.cli.boundary import run
from modelforge.cli.main import call
code = run(call, json.loads(sys.argv[1]))
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def modules_after(*arguments: str) -> tuple[int, set[str], str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SCRIPT, json.dumps(arguments)], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stderr.strip().splitlines()[-1])
    return code, set(modules), done.stdout


def test_help_imports_nothing_heavy() -> None:
    code, modules, out = modules_after("--help")
    assert code == 0
    assert all(name in out for name in COMMANDS)
    assert not {name for name in modules if name in _HEAVY or name.split(".")[0] in _HEAVY}


def test_a_command_of_its_own_imports_no_screen_and_no_model_library() -> None:
    _, modules, _ = modules_after("probe", "list", "--help")
    assert not modules & {"textual", "torch", "transformers", "sentence_transformers", "numpy", "controller"}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_entry_of_the_table_leads_to_its_command(name: str) -> None:
    module, attribute = COMMANDS[name].target.split(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.name == name


def commands_below(command: click.Command) -> list[click.Command]:
    if isinstance(command, click.Group):
        return [leaf for child in command.commands.values() for leaf in commands_below(child)]
    return [command]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_takes_json(name: str) -> None:
    module, attribute = COMMANDS[name].target.split(":")
    for command in commands_below(getattr(import_module(module), attribute)):
        assert "--json" in {option for parameter in command.params for option in parameter.opts}, command.name
        assert command.help, command.name


def test_completion_knows_commands_subcommands_and_options() -> None:
    from click.shell_completion import ShellComplete  # noqa: PLC0415 -- only here

    complete = ShellComplete(root, {}, "modelforge", "_MODELFORGE_COMPLETE")
    assert "probe" in {item.value for item in complete.get_completions([], "pr")}
    assert {"queue", "watch", "show", "list", "cancel", "log"} == {
        item.value for item in complete.get_completions(["probe"], "")
    }
    assert {"enable", "disable", "show", "list"} == {item.value for item in complete.get_completions(["node"], "")}
    assert {"list", "show", "validate"} == {item.value for item in complete.get_completions(["environment"], "")}
    assert {"create", "list", "show", "validate"} == {item.value for item in complete.get_completions(["profile"], "")}
    assert "quarantine" in {item.value for item in complete.get_completions(["artifact"], "q")}
    assert "--expect-signature" in {item.value for item in complete.get_completions(["artifact", "scan"], "--expect")}
    assert "--wait" in {item.value for item in complete.get_completions(["probe", "queue"], "--w")}
