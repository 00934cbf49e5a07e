from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import adapters.inspect as inspectors
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


def asked_for() -> Iterator[str]:
    """Every package that an inspector asks an environment for: in a table of packages, or by a name of its own."""
    for found in pkgutil.iter_modules(inspectors.__path__, f"{inspectors.__name__}."):
        module = importlib.import_module(found.name)
        for table in (value for name, value in vars(module).items() if name.endswith("PACKAGES")):
            rows = table.values() if isinstance(table, dict) else [table]
            yield from (package for row in rows for package in row)
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="packages"), attr="get"),
                    args=[ast.Constant(value=str(package)), *_],
                ):
                    yield package
                case ast.Compare(left=ast.Constant(value=str(package)), comparators=[ast.Attribute(attr="packages")]):
                    yield package
                case _:
                    continue


@pytest.mark.req("A8", "A10")
def test_a_node_reports_every_package_that_an_inspector_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an installed package would be called missing."""
    asked = set(asked_for())
    assert asked >= {"torch", "sentencepiece", "torchvision", "vllm", "hqq", "nvidia-cuda-runtime-cu12"}
    monkeypatch.setattr(registry, "installed_version", lambda _package: "1")
    reported = registry.runtime_environment().packages
    assert asked - set(reported) == set()
    entries = registry.entries()
    assert {name for entry in entries for name in (entry.distribution, *entry.requires)} - set(reported) == set()
    monkeypatch.undo()
    assert set(registry.runtime_environment().packages) == {
        package for package in reported if registry.installed_version(package) is not None
    }
