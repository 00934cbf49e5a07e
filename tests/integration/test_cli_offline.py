"""The command line where nothing runs, or where what it is given is wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from modelforge.keys import ensure_key
from tests.support.cli import modelforge


def code_of(out: str) -> str:
    document = json.loads(out)
    assert document["schema"] == "modelforge.error/v1"
    return str(document["data"]["code"])


@pytest.mark.parametrize("arguments", [("probe", "list"), ("artifact", "scan", "x"), ("probe", "watch"), ("tui",)])
def test_without_a_stack_the_next_command_is_up(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = modelforge(tmp_path / "state", *arguments)
    assert result.code == 3
    assert "error: NOT_CONNECTED: " in result.err
    assert "modelforge up" in result.err.splitlines()[2]
    assert not (tmp_path / "state").exists()


def test_a_state_that_was_meant_as_a_filter_is_named_as_the_folder_that_it_is(tmp_path: Path) -> None:
    result = modelforge(tmp_path / "state", "probe", "list", "--state", "failed")
    assert result.code == 3
    assert f"in the state folder {Path('failed').resolve()}" in result.err.splitlines()[0]


def test_a_server_that_is_not_there_is_told_fast(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    ensure_key(tmp_path / "me.nk")
    result = modelforge(
        tmp_path / "state",
        "probe",
        "list",
        "--json",
        "--url",
        f"nats://127.0.0.1:{port}",
        "--user",
        "me",
        "--credentials",
        str(tmp_path / "me.nk"),
    )
    assert result.code == 3
    assert code_of(result.out) == "NOT_CONNECTED"
    assert str(port) in result.err


UP, LIST, SHOW, DOCTOR = ("up", "--port", "0"), ("probe", "list"), ("config", "show"), ("doctor",)
UNKNOWN_KEY, UNKNOWN_SECTION, NOT_TOML = "[client]\nulr = 'x'\n", "[cleint]\n", "[client\n"


@pytest.mark.parametrize(
    ("command", "content", "code"),
    [
        (UP, UNKNOWN_KEY, "CONFIG_INVALID"),
        (LIST, UNKNOWN_KEY, "CONFIG_INVALID"),
        (SHOW, UNKNOWN_KEY, "CONFIG_INVALID"),
        (DOCTOR, UNKNOWN_KEY, "CONFIG_INVALID"),
        (UP, UNKNOWN_SECTION, "CONFIG_INVALID"),
        (LIST, UNKNOWN_SECTION, "CONFIG_INVALID"),
        (UP, NOT_TOML, "CONFIG_UNREADABLE"),
        (LIST, NOT_TOML, "CONFIG_UNREADABLE"),
        (UP, None, "CONFIG_UNREADABLE"),
        (LIST, None, "CONFIG_UNREADABLE"),
    ],
)
def test_a_wrong_configuration_is_refused_by_every_command(
    tmp_path: Path,
    command: tuple[str, ...],
    content: str | None,
    code: str,
) -> None:
    file = tmp_path / "modelforge.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    result = modelforge(tmp_path / "state", *command, "--json", extra={"MODELFORGE_CONFIG": str(file)})
    if command == ("doctor",):
        assert result.code == 1
        assert code in result.data[0]["detail"]
    else:
        assert result.code == 2
        assert code_of(result.out) == code
        assert str(file) in result.err
    assert not (tmp_path / "state").exists()


def test_doctor_without_a_stack_says_what_to_do(tmp_path: Path) -> None:
    result = modelforge(tmp_path / "state", "doctor")
    assert result.code == 1
    assert "fail  stack: NOT_CONNECTED" in result.out
    assert "modelforge up" in result.out
    assert not (tmp_path / "state").exists()


def test_a_state_folder_that_is_a_file_is_typed(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    result = modelforge(tmp_path / "state", "up", "--port", "0", "--json")
    assert result.code == 3
    assert code_of(result.out) == "STORE_UNAVAILABLE"


def test_a_damaged_endpoint_file_is_typed(tmp_path: Path) -> None:
    endpoint = tmp_path / "state" / "run" / "endpoint.json"
    endpoint.parent.mkdir(parents=True)
    endpoint.write_text("{")
    result = modelforge(tmp_path / "state", "probe", "list", "--json")
    assert result.code == 2
    assert code_of(result.out) == "CONFIG_UNREADABLE"
