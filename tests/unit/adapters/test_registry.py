from __future__ import annotations

import inspect

import pytest

from adapters import registry
from adapters.base import RuntimeAdapter
from bus.errors import ErrorCode, ModelForgeError


@pytest.mark.req("P14")
def test_the_interface_has_the_specified_methods() -> None:
    assert (
        frozenset(
            {
                "inspect_support",
                "prepare",
                "start",
                "probe",
                "health",
                "stop",
                "unload",
                "collect_runtime_facts",
            }
        )
        == RuntimeAdapter.__abstractmethods__
    )
    assert inspect.isabstract(RuntimeAdapter)


@pytest.mark.req("P14")
def test_only_the_embedding_adapter_is_executable() -> None:
    executable = [entry.name for entry in registry.entries() if entry.target is not None]
    assert executable == ["sentence_transformers"]


@pytest.mark.req("P14")
@pytest.mark.req("P9")
@pytest.mark.parametrize(
    "name", ["transformers", "vllm", "llama_cpp", "diffusers", "custom", "nothing", "adapters.faulty:FaultyAdapter"]
)
def test_an_adapter_without_an_executable_part_is_incompatible(name: str) -> None:
    for ask in (registry.find, registry.make):
        with pytest.raises(ModelForgeError) as caught:
            ask(name)
        assert caught.value.code == ErrorCode.RUNTIME_INCOMPATIBLE


@pytest.mark.req("B4")
def test_the_test_double_exists_only_where_it_was_asked_for() -> None:
    with pytest.raises(ModelForgeError):
        registry.find(registry.TEST_DOUBLE)
    assert registry.TEST_DOUBLE not in [facts.name for facts in registry.adapter_facts()]
    assert registry.find(registry.TEST_DOUBLE, test_double=True).name == registry.TEST_DOUBLE


@pytest.mark.req("A2")
def test_facts_come_from_package_metadata() -> None:
    facts = {fact.name: fact for fact in registry.adapter_facts()}
    ours = facts["sentence_transformers"]
    assert ours.executable
    assert ours.version == registry.installed_version("sentence-transformers")
    assert "embedding" in ours.tasks
    assert not facts["vllm"].executable
    assert facts["vllm"].reason is not None
    assert not facts["custom"].executable


def test_a_missing_package_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed_version", lambda package: None if package == "torch" else "1")
    facts = {fact.name: fact for fact in registry.adapter_facts()}
    assert not facts["sentence_transformers"].executable
    assert facts["sentence_transformers"].reason == "not installed: torch (the `runtime` extra)"


@pytest.mark.req("A18")
def test_the_environment_has_a_digest_of_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    before = registry.runtime_environment()
    assert before.packages["torch"] == registry.installed_version("torch")
    assert before.digest() == registry.runtime_environment().digest()
    monkeypatch.setattr(registry, "installed_version", lambda _package: "0")
    assert registry.runtime_environment().digest() != before.digest()


def test_what_is_warmed_ahead_can_be_executed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.worth_warming() == ("sentence_transformers",)
    assert registry.worth_warming(test_double=True) == (registry.TEST_DOUBLE,)
    monkeypatch.setattr(registry, "installed_version", lambda package: None if package == "torch" else "1")
    assert registry.worth_warming() == ()
