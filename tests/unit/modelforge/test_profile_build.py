from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import Budgets, RuntimeProfile
from modelforge.cli import boundary, main
from modelforge.cli.profile import build_profile, create, read_toml


def test_a_name_is_enough() -> None:
    assert build_profile("p", {}, {"device": None}) == RuntimeProfile(name="p")


def test_the_command_offers_what_a_profile_may_hold() -> None:
    hints = get_type_hints(RuntimeProfile)
    offered = {str(option.name): option.type for option in create.params if isinstance(option.type, click.Choice)}
    assert set(offered) == {"device", "dtype"}
    assert all(tuple(choice.choices) == get_args(hints[name]) for name, choice in offered.items())


@pytest.mark.parametrize("flags", [["--device", "tpu"], ["--dtype", "int4"], ["--threads", "0"], ["--threads", "x"]])
def test_a_wrong_value_is_told_in_the_words_of_the_command_line(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.run(main.call, ["profile", "create", "p", *flags]) == 2
    assert f"Invalid value for '{flags[0]}'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["UPPER", "a" * 25, "9a", "a b"])
def test_a_bad_name_is_told_in_words_and_not_as_a_pattern(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run(main.call, ["profile", "create", name]) == 2
    said = capsys.readouterr().err
    assert "must be 1 to 24 of a-z, 0-9 and -" in said
    assert "regex" not in said


def test_flags_win_over_the_file() -> None:
    document = {"name": "from-file", "batch_size": 4, "budgets": {"loading_s": 10, "total_s": 99}}
    made = build_profile("p", document, {"batch_size": 8, "total_s": 50, "threads": None})
    assert made == RuntimeProfile(name="p", batch_size=8, budgets=Budgets(loading_s=10, total_s=50))


@pytest.mark.parametrize(
    ("name", "document", "flags", "words"),
    [
        (None, {}, {}, "needs a NAME"),
        ("P", {}, {}, "name"),
        ("p", {"dytpe": "float32"}, {}, "unknown field 'dytpe'"),
        ("p", {"budgets": {"load_s": 1}}, {}, "unknown field 'load_s'"),
        ("p", {"budgets": 3}, {}, "must be a table"),
        ("p", {}, {"device": "tpu"}, "device"),
        ("p", {}, {"batch_size": 0}, "batch_size"),
    ],
)
def test_what_is_wrong_is_named(name: str | None, document: dict[str, Any], flags: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelForgeError, match=words) as caught:
        build_profile(name, document, flags)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_every_field_of_a_profile_has_a_flag() -> None:
    names = {parameter.name for parameter in create.params}
    fields = {*RuntimeProfile.__struct_fields__, *Budgets.__struct_fields__} - {"task", "budgets"}
    assert fields <= names


def test_a_file_that_cannot_be_read_is_typed(tmp_path: Path) -> None:
    for path, content in (
        (tmp_path / "missing.toml", None),
        (tmp_path / "bad.toml", b"= 1"),
        (tmp_path / "latin.toml", b"name = '\xe4'"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelForgeError) as caught:
            read_toml(path)
        assert caught.value.code is ErrorCode.CONFIG_UNREADABLE
