"""Configuration: order of the four places, and typed refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.settings import ClientSettings, load, read_toml
from modelforge.cli.profile_fields import read_toml as profile_toml
from node_agent import environment_file


def written(folder: Path, text: str) -> Path:
    path = folder / "modelforge.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, '[client]\nurl = "nats://file:1"\nuser = "file"\ncredentials = "file.nk"\n')
    variables = {"MODELFORGE_URL": "nats://variable:1", "MODELFORGE_USER": "variable"}
    loaded = load(ClientSettings, "client", file=file, variables=variables, flags={"url": "nats://flag:1"})
    assert (loaded.value.url, loaded.value.user, loaded.value.credentials) == ("nats://flag:1", "variable", "file.nk")
    assert loaded.value.timeout_s == 10.0
    assert loaded.origins == {
        "url": "flag",
        "user": "variable MODELFORGE_USER",
        "credentials": f"file {file}",
        "js_prefix": "default",
        "timeout_s": "default",
    }


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("[client", ErrorCode.CONFIG_UNREADABLE, "at end of document"),
        ("[clint]\nurl = 'x'", ErrorCode.CONFIG_INVALID, "unknown section 'clint'"),
        ("url = 'x'", ErrorCode.CONFIG_INVALID, "unknown section 'url'"),
        ("[client]\nuri = 'x'", ErrorCode.CONFIG_INVALID, "unknown key 'uri'"),
        ("[client]\ntimeout_s = 'soon'", ErrorCode.CONFIG_INVALID, "timeout_s"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, code: ErrorCode, said: str) -> None:
    with pytest.raises(ModelForgeError) as caught:
        load(ClientSettings, "client", file=written(tmp_path, text), variables={})
    assert caught.value.code is code
    assert said in caught.value.message
    assert caught.value.info.exit is Exit.USAGE


LONG_NUMBERS = {
    "decimal": "9" * 4_400,
    "hexadecimal": f"0x{'f' * 20_000}",
    "65 bits": str(2**63),
    "below": str(-(2**64)),
}


@pytest.mark.parametrize("number", sorted(LONG_NUMBERS))
@pytest.mark.parametrize("text", ["[client]\ntimeout_s = {}", "[client]\nurl = [{{x = [{}]}}]", "[client.url]\n1 = {}"])
@pytest.mark.parametrize("read", [read_toml, profile_toml, environment_file.load])
def test_a_number_that_nothing_can_be_made_of_is_refused_wherever_toml_is_read(
    tmp_path: Path, number: str, text: str, read: Callable[[Path], object]
) -> None:
    file = written(tmp_path, text.format(LONG_NUMBERS[number]))
    with pytest.raises(ModelForgeError) as caught:
        read(file)
    assert caught.value.code is ErrorCode.CONFIG_UNREADABLE
    assert "more than 64 bits" in caught.value.message
    assert len(caught.value.message) < len(str(file)) + 80
    with pytest.raises(ModelForgeError) as caught:
        load(ClientSettings, "client", file=file, variables={})
    assert caught.value.code is ErrorCode.CONFIG_UNREADABLE


def test_the_largest_numbers_of_toml_are_read(tmp_path: Path) -> None:
    file = written(tmp_path, f"low = {-(2**63)}\nhigh = {2**63 - 1}\nday = 2026-11-29\non = true\nshare = 1e999\n")
    assert read_toml(file)["high"] == 2**63 - 1


@pytest.mark.parametrize("kind", ["missing", "folder", "bytes"])
def test_an_unreadable_file_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "modelforge.toml"
    if kind == "folder":
        file.mkdir()
    elif kind == "bytes":
        file.write_bytes(b"\xff\xfe[client]")
    with pytest.raises(ModelForgeError) as caught:
        load(ClientSettings, "client", file=file, variables={})
    assert caught.value.code is ErrorCode.CONFIG_UNREADABLE
