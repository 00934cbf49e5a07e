"""A runtime environment on the screen and as a file: what is declared is not what is proven."""

from __future__ import annotations

import asyncio
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.messages.api import Environments
from bus.messages.profiles import AdapterFacts, EnvironmentView, RuntimeEnvironment
from modelforge.cli import boundary, environment, main
from modelforge.cli.environment import declaration_toml, environment_card
from node_agent.environment_file import load

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENVIRONMENT = RuntimeEnvironment(
    python="3.11.9",
    platform="linux-x86_64",
    packages={"torch": "2.13.0", "numpy": "2.4.6"},
    image="registry/models@sha256:" + "ab" * 32,
    adapters=(
        AdapterFacts(
            name="sentence_transformers",
            version="6.2.0",
            executable=True,
            tasks=("embedding",),
            modalities=("text",),
            model_types=tuple(f"type{number}" for number in range(30)),
            formats=("safetensors",),
            quantizations=("gptq",),
        ),
        AdapterFacts(name="vllm", version="1", executable=False, reason="inspected only", inspect_only=True),
        AdapterFacts(name="transformers", version="5.3.0", executable=False, reason="torch is missing"),
    ),
)
VIEW = EnvironmentView(id=ENVIRONMENT.digest(), version=3, environment=ENVIRONMENT, first_seen_at=AT, nodes=("local",))


def test_the_card_has_what_was_read_and_what_each_adapter_declares() -> None:
    card = environment_card(VIEW)
    assert "version      3" in card
    assert "image\n  registry/models@sha256:" in card
    assert "torch    2.13.0" in card
    assert "sentence_transformers 6.2.0 (declared, not proven)" in card
    assert "type11 and 18 more: see --json" in card
    assert "not executable: torch is missing" in card
    assert "inspected only" in card


def test_what_it_declares_is_a_file_that_a_node_takes(tmp_path: Path) -> None:
    file = tmp_path / "environment.toml"
    file.write_text(declaration_toml(ENVIRONMENT))
    declared = load(file)
    assert declared.image == ENVIRONMENT.image
    assert set(declared.adapters) == {one.name for one in ENVIRONMENT.adapters}
    first = declared.adapters["sentence_transformers"]
    assert first.model_types == ENVIRONMENT.adapters[0].model_types
    assert (first.tasks, first.quantizations) == (("embedding",), ("gptq",))
    bare = msgspec.structs.replace(ENVIRONMENT, image=None, adapters=())
    assert tomllib.loads(declaration_toml(bare)) == {"adapters": {}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('image = "x"\n[adapters.vllm]\ntasks = ["text_generation"]\n', None),
        ('imgae = "x"\n', "unknown key 'imgae'"),
        ('python = "3.12"\n', "cannot be declared"),
        ("[adapters.nothing]\n", "there is no adapter 'nothing'"),
        ('[adapters.vllm]\ntasks = ["chat"]\n', "chat"),
    ],
)
def test_a_file_is_checked_without_an_agent(
    content: str, words: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "environment.toml"
    file.write_text(content)
    expected = 0 if words is None else 2
    assert boundary.run(main.call, ["environment", "validate", str(file), "--json"]) == expected
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["valid"] is (words is None)
    assert boundary.run(main.call, ["environment", "validate", str(file)]) == expected
    out = capsys.readouterr().out
    if words is None:
        assert out.startswith("VALID: ")
        assert "tasks: text_generation" in out
    else:
        assert out.startswith("INVALID: ")
        assert {problem["code"] for problem in data["problems"]} == {"CONFIG_INVALID"}
        assert words in data["problems"][0]["message"]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    answers: dict[str, Any] = {}

    class Answering:
        async def call(self, verb: Any, request: Any) -> Any:
            answers["asked"] = request
            return answers[verb.name]

    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr(environment, "with_operator", lambda _, work: asyncio.run(work(Answering())))
    return answers


def test_list_and_show(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    answer["environments.list"] = Environments(environments=(VIEW,))
    answer["environments.show"] = VIEW
    assert boundary.run(main.call, ["environment", "list"]) == 0
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert "1 of 3 executable" in row
    assert row.split()[:3] == [VIEW.id[7:19], "3", "local"]
    assert boundary.run(main.call, ["environment", "show", "local"]) == 0
    assert answer["asked"].id == "local"
    assert VIEW.id in capsys.readouterr().out
    assert boundary.run(main.call, ["environment", "show", "local", "--toml"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["image"] == ENVIRONMENT.image
    assert boundary.run(main.call, ["environment", "show", "local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["version"] == 3


def test_the_card_fits_the_terminal_in_whole_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    tasks = ("embedding", "reranking", "text_generation", "image_to_text", "image_text_similarity")
    one = msgspec.structs.replace(VIEW.environment.adapters[0], tasks=tasks)
    inside = msgspec.structs.replace(VIEW.environment, adapters=(one,))
    lines = environment_card(msgspec.structs.replace(VIEW, environment=inside)).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert {f"{task}," for task in tasks[:-1]} | {tasks[-1]} <= set(" ".join(lines).split())
