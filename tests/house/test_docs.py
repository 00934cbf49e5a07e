"""Pages that the code writes are what the code says; in the others, every link, target and command exists."""

from __future__ import annotations

import re
from typing import Final

import click
import pytest

from bus.errors import CODES, ErrorCode
from docs import generate
from modelforge.cli.main import root
from tests.support import repo

PAGES: Final = [path for path in repo.files() if path.endswith(".md")]
PROSE: Final = [path for path in PAGES if not path.startswith("docs/reference/")]
ADRS: Final = [path for path in PAGES if re.fullmatch(r"docs/adr/\d{4}-[a-z0-9-]+\.md", path)]
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_COMMAND: Final = re.compile(r"(?<![\w.-])modelforge((?: [a-z]+(?:-[a-z]+)*)+)")


def test_the_reference_is_what_the_code_says() -> None:
    assert generate.differences() == {}


def test_the_command_reference_tells_what_is_required_what_is_the_default_and_what_may_be_chosen() -> None:
    lines = repo.text("docs/reference/cli.md").splitlines()

    assert "| `--reason` TEXT | **required** | Why; it is kept and audited. |" in lines
    assert "| `--limit` INTEGER | `50` | Newest ones only. |" in lines
    assert "| `--device` `cpu`, `cuda` | cpu | Where it runs. |" in lines
    assert "| `--wait`, `--no-wait` | `--wait` | Wait for the scan's end. |" in lines


@pytest.mark.parametrize("path", PAGES)
def test_links_lead_somewhere(path: str) -> None:
    folder = (repo.ROOT / path).parent
    targets = [
        target for target in _LINK.findall(repo.text(path)) if not target.startswith(("http://", "https://", "mailto:"))
    ]

    assert [target for target in targets if not (folder / target).exists()] == []


@pytest.mark.parametrize("path", PROSE)
def test_make_targets_in_prose_exist(path: str) -> None:
    targets = set(re.findall(r"`make ([a-z]+)`", repo.text(path))) | set(
        re.findall(r"^make ([a-z]+)", repo.text(path), re.MULTILINE)
    )

    assert targets <= set(re.findall(r"^([a-z]+):", repo.text("Makefile"), re.MULTILINE))


def unknown_commands(text: str) -> list[str]:
    """Commands named in a text that the command line does not have; words after the command are arguments."""
    unknown = []
    for words in _COMMAND.findall(text):
        command: click.Command = root
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            try:
                _, found, _ = command.resolve_command(click.Context(command), [word])
            except click.UsageError:
                found = None
            if found is None:
                unknown.append(f"modelforge{words}")
                break
            command = found
    return unknown


@pytest.mark.parametrize("path", PROSE)
def test_commands_in_prose_exist(path: str) -> None:
    """Only what stands in code style counts: elsewhere `modelforge` is the name of the product."""
    spans = re.findall(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", repo.text(path), re.DOTALL)

    assert unknown_commands("\n".join(block or span for block, span in spans)) == []


def test_commands_in_remedies_exist() -> None:
    assert unknown_commands("\n".join(info.remedy for info in CODES.values())) == []


def test_options_in_remedies_exist() -> None:
    unknown = []
    for words in re.findall(r"`modelforge ([^`]+)`", "\n".join(info.remedy for info in CODES.values())):
        command: click.Command = root
        for word in words.split():
            if isinstance(command, click.Group):
                # `assess SET` is short for `assess create SET`.
                name = getattr(command, "default", word) if word.isupper() else word
                found = command.resolve_command(click.Context(command), [name])[1]
                assert found is not None
                command = found
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        unknown += [word for word in words.split() if word.startswith("--") and word not in known]

    assert unknown == []


def test_remedies_can_be_followed() -> None:
    """`config show` fails on the very file that is wrong; an approval has no `show`; a profile is never changed."""
    assert "config show" not in CODES[ErrorCode.CONFIG_INVALID].remedy
    assert "show" not in CODES[ErrorCode.ILLEGAL_TRANSITION].remedy
    assert "modelforge profile create" in CODES[ErrorCode.TIMEOUT].remedy


def test_the_readme_shows_what_a_real_run_of_the_demo_said() -> None:
    """A placeholder is no capture; and a capture names no folder of the machine that it was made on."""
    (capture,) = re.findall(
        r"<!-- capture: begin -->\n```text\n(.*?)```\n<!-- capture: end -->", repo.text("README.md"), re.DOTALL
    )

    assert "lab_ready" in capture
    assert "production=false" in capture
    assert [line for line in capture.splitlines() if re.search(r"(?:^|[\s=])/\w", line)] == []


@pytest.mark.parametrize("path", ADRS)
def test_a_decision_has_context_decision_and_consequences(path: str) -> None:
    headings = re.findall(r"^## (.+)$", repo.text(path), re.MULTILINE)

    assert headings == ["Context", "Decision", "Consequences"]
    assert re.match(r"# \d{4}\. ", repo.text(path))


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(path.rsplit("/", maxsplit=1)[1][:4]) for path in ADRS] == list(range(1, len(ADRS) + 1))


def test_decisions_that_the_code_names_exist() -> None:
    numbers = {path.rsplit("/", maxsplit=1)[1][:4] for path in ADRS}
    named = {
        number
        for path in repo.files()
        if path.endswith((".py", ".sql", ".toml", ".yaml"))
        for number in re.findall(r"(?:docs/adr/|ADR )(\d{4})", repo.text(path))
    }

    assert named - numbers == set()
