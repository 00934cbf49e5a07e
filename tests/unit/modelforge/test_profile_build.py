from __future__ import annotations

import asyncio
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ArtifactSets, Nodes
from bus.messages.artifacts import ArtifactSet, SetLocation
from bus.messages.profiles import (
    AdapterFacts,
    AudioSemantics,
    Budgets,
    Preprocessing,
    ProfileView,
    RuntimeProfile,
)
from modelforge.cli import boundary, main
from modelforge.cli.profile import create, profile_toml
from modelforge.cli.profile_fields import TABLES, build_profile, examine, read_toml
from tests.support.declaring import declaring

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stored:
    one = Stored("sentence_transformers", "of_a_node")
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr("modelforge.cli.profile.with_operator", lambda _, work: asyncio.run(work(one)))
    return one


def test_a_name_is_enough() -> None:
    assert build_profile("p", {}, {"device": None}) == RuntimeProfile(name="p")


def test_the_command_offers_what_a_profile_may_hold() -> None:
    hints = {
        name: hint
        for type_ in (RuntimeProfile, Preprocessing, AudioSemantics)
        for name, hint in get_type_hints(type_).items()
    }
    offered = {str(option.name): option.type for option in create.params if isinstance(option.type, click.Choice)}
    assert set(offered) == {"device", "dtype", "task", "overlong_text", "overlong_audio", "purpose"}
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
    document = {"name": "from-file", "batch_size": 4, "budgets": {"loading_s": 10, "preparing_s": 9, "total_s": 99}}
    made = build_profile("p", document, {"batch_size": 8, "total_s": 60, "threads": None})
    assert made == RuntimeProfile(name="p", batch_size=8, budgets=Budgets(loading_s=10, preparing_s=9, total_s=60))


@pytest.mark.parametrize(
    ("name", "document", "flags", "words"),
    [
        (None, {}, {}, "needs a NAME"),
        ("P", {}, {}, "name"),
        ("p", {"dytpe": "float32"}, {}, "unknown field 'dytpe'"),
        ("p", {"budgets": {"load_s": 1}}, {}, "unknown field 'load_s'"),
        ("p", {"budgets": 3}, {}, "must be a table"),
        ("p", {}, {"device": "tpu"}, "device"),
        ("p", {}, {"batch_size": 0}, "batch_size: 0 is not a whole number from 1 to 9"),
        ("p", {"threads": "2"}, {}, "threads: '2' is not a whole number from 1 to 9"),
        ("p", {"normalize": "yes"}, {}, "normalize: 'yes' is not true or false"),
        ("p", {"audio": {"windw_s": 3}}, {}, "audio: unknown field 'windw_s'"),
        ("p", {"preprocessing": []}, {}, "preprocessing: must be a table"),
        ("p", {"task": "chat"}, {}, "task: 'chat' is not one of embedding, image_generation"),
        ("p", {"device": "cuda-preferred"}, {}, "never runs on a CPU"),
    ],
)
def test_what_is_wrong_is_named(name: str | None, document: dict[str, Any], flags: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelForgeError, match=words) as caught:
        build_profile(name, document, flags)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_every_field_of_a_profile_has_a_flag() -> None:
    names = {parameter.name for parameter in create.params}
    tables = {name for type_ in TABLES.values() for name in type_.__struct_fields__}
    # A colour mode is no choice yet: there is one.
    assert {*RuntimeProfile.__struct_fields__, *tables} - {*TABLES, "image_mode"} <= names


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


def test_the_flags_of_a_table_go_into_that_table() -> None:
    flags = {"task": "speech_recognition", "window_s": 20, "language": "en", "memory_margin_mib": 0}
    assert build_profile("p", {"audio": {"window_s": 5, "timestamps": True}}, flags) == RuntimeProfile(
        name="p",
        task="speech_recognition",
        memory_margin_mib=0,
        audio=AudioSemantics(window_s=20, language="en", timestamps=True),
    )
    pictured = build_profile("p", {}, {"task": "image_to_text", "image_size_px": 224})
    assert pictured.preprocessing == Preprocessing(image_size_px=224)


class Stored:
    """A controller that has one profile, and one node."""

    def __init__(self, *adapters: str) -> None:
        facts = tuple(AdapterFacts(name=name, version="1", executable=True) for name in adapters)
        self._node = declaring(*facts)
        self.sent: list[RuntimeProfile] = []
        self.sets: tuple[ArtifactSet, ...] = ()

    async def call(self, verb: verbs.Verb[Any, Any], request: Any) -> object:
        if verb is verbs.NODES_LIST:
            return Nodes(nodes=(self._node,))
        if verb is verbs.PROFILES_SHOW:
            assert request.id == "old@2"
            return ProfileView(id=OLD.digest(), profile=OLD, created_at=AT, created_by="me", version=2)
        if verb is verbs.ARTIFACTS_LIST:
            return ArtifactSets(sets=self.sets)
        self.sent.append(request.profile)
        return ProfileView(id=request.profile.digest(), profile=request.profile, created_at=AT, created_by="me")


OLD = RuntimeProfile(
    name="old", batch_size=4, threads=3, budgets=Budgets(loading_s=7, total_s=600), memory_limit_mib=512
)


def test_a_profile_begins_with_a_stored_one_and_keeps_all_that_is_not_named(stored: Stored, tmp_path: Path) -> None:
    """What a remedy asks for is one change; every other setting must still be the old one."""
    new = ["profile", "create", "new", "--from", "old@2"]
    assert boundary.run(main.call, [*new, "--memory-limit-mib", "2048"]) == 0
    assert boundary.run(main.call, [*new, "--unloading-s", "9", "--overlong-text", "refuse"]) == 0
    file = tmp_path / "p.toml"
    file.write_text("threads = 2\n[budgets]\nloading_s = 8\n")
    assert boundary.run(main.call, [*new, "--file", str(file), "--threads", "1"]) == 0
    changed = msgspec.structs.replace
    assert stored.sent == [
        changed(OLD, name="new", memory_limit_mib=2048),
        changed(
            OLD,
            name="new",
            budgets=changed(OLD.budgets, unloading_s=9),
            preprocessing=Preprocessing(overlong_text="refuse"),
        ),
        changed(OLD, name="new", threads=1, budgets=changed(OLD.budgets, loading_s=8)),
    ]


def test_a_profile_is_followed_by_an_assessment_with_the_real_names(
    stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.run(main.call, ["profile", "create", "p"]) == 0
    assert capsys.readouterr().err == "next: modelforge artifact scan PATH\n"
    place = SetLocation(node="far", path="m", state="present", scanned_at=AT)
    one = ArtifactSet(digest=f"sha256:{'ab' * 32}", file_count=1, size_bytes=1, created_at=AT, locations=(place,))
    stored.sets = (one,)
    assert boundary.run(main.call, ["profile", "create", "p"]) == 0
    assert capsys.readouterr().err == "next: modelforge assess abababababab --profile p@1 --node far\n"


def test_the_next_version_of_a_profile_needs_no_name(stored: Stored) -> None:
    assert boundary.run(main.call, ["profile", "create", "--from", "old@2", "--new-version", "--threads", "8"]) == 0
    assert [(one.name, one.threads) for one in stored.sent] == [("old", 8)]


@pytest.mark.parametrize(("adapter", "code"), [("nonsense", 2), ("of_a_node", 0), ("custom", 0), ("vllm", 0)])
def test_an_adapter_that_nobody_knows_is_refused(
    stored: Stored, adapter: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.run(main.call, ["profile", "create", "p", "--adapter", adapter]) == code
    assert len(stored.sent) == (code == 0)
    if code:
        err = capsys.readouterr().err
        assert "'nonsense' is not one of sentence_transformers, " in err
        assert "of_a_node" in err
        assert "`custom`" in err


def test_a_file_with_an_unknown_adapter_is_not_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = "p"\nadapter = "nonsense"\n')
    assert boundary.run(main.call, ["profile", "validate", str(file)]) == 2
    assert "adapter: 'nonsense' is not one of" in capsys.readouterr().out


def test_help_breaks_no_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert boundary.run(main.call, ["profile", "create", "--help"]) == 0
    words = capsys.readouterr().out.replace("│", " ").split()
    for word in ("--normalize/--no-normalize", "--timestamps/--no-timestamps", "image_text_similarity,", "bfloat16."):
        assert word in words


def test_a_device_that_may_change_is_no_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run(main.call, ["profile", "create", "p", "--device", "cuda-preferred"]) == 2
    assert "never runs on a CPU" in capsys.readouterr().err


WRONG = """
name = "p"
threads = 0
dytpe = "float32"
device = "cuda-preferred"
[budgets]
load_s = 1
"""


def test_every_problem_is_named_at_once_and_nothing_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(WRONG)
    assert boundary.run(main.call, ["profile", "validate", str(file), "--json"]) == 2
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["valid"] is False
    assert {problem["code"] for problem in data["problems"]} == {"INVALID_ARGUMENT"}
    assert [problem["field"] for problem in data["problems"]] == ["threads", "", "device", ""]
    assert boundary.run(main.call, ["profile", "validate", str(file)]) == 2
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("INVALID: 4 problems")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "the fields are name, adapter" in " ".join(out.split())


def test_values_that_do_not_go_together_are_all_named() -> None:
    found, problems = examine({"name": "p", "gpu_uuid": "GPU-1", "audio": {}, "batch_size": 10**9})
    assert found is None
    assert [problem.message.split()[0] for problem in problems] == ["batch_size", "gpu_uuid", "audio"]


def test_a_good_file_is_shown_with_its_identity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = "p"\nbatch_size = 4\n')
    assert boundary.run(main.call, ["profile", "validate", str(file), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["id"] == RuntimeProfile(name="p", batch_size=4).digest()
    assert boundary.run(main.call, ["profile", "validate", str(file)]) == 0
    assert capsys.readouterr().out.startswith("VALID: profile p (")


@pytest.mark.parametrize("content", [None, "= 1", "a = [" * 10_000])
def test_a_file_that_is_no_toml_is_typed(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.toml"
    if content is not None:
        file.write_text(content)
    for noun in ("profile", "environment"):
        assert boundary.run(main.call, [noun, "validate", str(file), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["data"]["code"] == "CONFIG_UNREADABLE"


LINE = st.text(max_size=20)
PROFILES = st.builds(
    RuntimeProfile,
    name=st.just("p"),
    adapter=LINE,
    gpu_uuid=st.none() | LINE,
    quantization=st.none() | LINE,
    normalize=st.booleans(),
    memory_margin_mib=st.integers(0, 2**40),
    budgets=st.builds(Budgets, total_s=st.integers(1, 9_999)),
    preprocessing=st.none() | st.builds(Preprocessing, image_size_px=st.none() | st.integers(1, 999)),
    audio=st.none() | st.builds(AudioSemantics, language=st.none() | LINE, timestamps=st.booleans()),
)


@given(PROFILES)
def test_what_is_written_is_the_same_profile_when_it_is_read(one: RuntimeProfile) -> None:
    written = profile_toml(one)
    assert all(character.isprintable() or character == "\n" for character in written)
    read = msgspec.convert(tomllib.loads(written), RuntimeProfile)
    assert read == one
    assert read.digest() == one.digest()
