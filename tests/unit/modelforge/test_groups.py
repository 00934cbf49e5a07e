from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import ArtifactSet
from modelforge.cli import approve, assess, boundary, main
from modelforge.cli.command import App
from modelforge.cli.names import require_digest_or_prefix
from modelforge.cli.output import Output

HEX = "ab" * 32


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stop each assess command where it would dial, and note that it came so far."""
    names: list[str] = []

    def dial(*_: Any) -> Any:
        names.append("dialled")
        raise ModelForgeError(ErrorCode.NOT_CONNECTED, "no server in a unit test")

    monkeypatch.setattr(assess, "with_operator", dial)
    return names


@pytest.mark.parametrize(
    "arguments",
    [
        [HEX[:8], "--profile", "p"],
        ["--profile", "p", HEX],
        ["create", f"sha256:{HEX}", "--profile", "p"],
        ["list"],
        ["show", "asm-1"],
    ],
)
def test_assess_is_a_verb_and_a_noun(arguments: list[str], asked: list[str]) -> None:
    assert boundary.run(main.call, ["assess", *arguments]) == 3
    assert asked == ["dialled"]


@pytest.mark.parametrize(
    "arguments", [["lst", "--profile", "p"], ["UPPER", "--profile", "p"], ["sha256:", "--profile", "p"]]
)
def test_a_misspelt_subcommand_is_not_taken_for_a_set(
    arguments: list[str], asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.run(main.call, ["assess", *arguments]) == 2
    assert asked == []
    assert "names no set" in capsys.readouterr().err


def test_a_set_is_named_by_hex_digits() -> None:
    assert require_digest_or_prefix("abc123") == "abc123"
    assert require_digest_or_prefix(f"sha256:{HEX}") == f"sha256:{HEX}"


@pytest.mark.req("G4")
@pytest.mark.parametrize("typed", [None, "", "y", "abababa"])
def test_nothing_but_the_first_digits_confirms_an_approval(typed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = ArtifactSet(digest=f"sha256:{HEX}", file_count=1, size_bytes=1, created_at="2026-01-01T00:00:00Z")  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(ModelForgeError) as caught:
        approve._confirm(exact, typed)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    approve._confirm(exact, "abababab")


def test_exit_codes_of_failures_survive_an_unknown_code() -> None:
    assert boundary.exit_of("UNKNOWN_ID") == 5
    assert boundary.exit_of("ARTIFACT_CHANGED") == 1
    assert boundary.exit_of("GPU_OOM") == 1
    assert boundary.exit_of("A_CODE_OF_TOMORROW") == 1


def test_version_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run(main.call, ["version", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "modelforge.version/v1"


def test_a_screen_has_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run(main.call, ["tui", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["data"]["code"] == "INVALID_ARGUMENT"
    assert boundary.run(main.call, ["tui", "--help"]) == 0
    assert "--json" not in capsys.readouterr().out


@pytest.mark.parametrize(("named", "suffix"), [(True, " --state '/a b'"), (False, "")])
def test_a_suggested_command_works_when_it_is_copied(
    named: bool, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    App(out=Output(), state=Path("/a b"), named_state=named, config=None).next("modelforge tui")
    assert capsys.readouterr().err == f"next: modelforge tui{suffix}\n"
