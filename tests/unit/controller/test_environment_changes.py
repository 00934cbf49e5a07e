"""What came and went between two environments is named, a few of it, and never more than fits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bus.messages.profiles import AdapterFacts, RuntimeEnvironment
from controller.environment_changes import of_fact
from tests.support.ledger import ADAPTER, environment

BASE = environment().adapters[0]
VLLM = AdapterFacts(name="vllm", version="not installed", executable=False, reason="inspects only")


def declaring(*others: AdapterFacts, **changes: Any) -> RuntimeEnvironment:
    return environment(adapters=(msgspec.structs.replace(BASE, **changes), *others))


def vllm(**changes: Any) -> AdapterFacts:
    return msgspec.structs.replace(VLLM, **changes)


@pytest.mark.req("A18")
def test_model_types_that_came_and_went_are_named_and_counted() -> None:
    many = tuple(f"type{number:03}" for number in range(400))
    before, after = declaring(model_types=("bert", *many)), declaring(model_types=("gemma4", *many))
    assert of_fact("adapter model types", before, after, ADAPTER) == ": gemma4 came; bert went"
    all_new = declaring(model_types=tuple(f"new{number}" for number in range(20)))
    said = of_fact("adapter model types", declaring(model_types=()), all_new, ADAPTER)
    assert said == ": new0, new1, new10, new11, new12, new13, new14, new15 and 12 more came"
    assert of_fact("adapter model types", declaring(), environment(adapters=()), ADAPTER) == ": bert went"


@pytest.mark.req("A18")
def test_packages_are_named_with_their_versions() -> None:
    before, after = environment(packages={"torch": "1", "a": "1"}), environment(packages={"torch": "2", "a": "1"})
    assert of_fact("packages", before, after, ADAPTER) == ": torch 2 came; torch 1 went"


@pytest.mark.req("A18")
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((VLLM,), (vllm(version="0.9"),), ": adapter vllm version changed from not installed to 0.9"),
        ((VLLM,), (vllm(executable=True),), ": adapter vllm executable changed from no to yes"),
        ((VLLM,), (vllm(reason=None),), ": adapter vllm reason changed from inspects only to none"),
        ((VLLM,), (vllm(tasks=("embedding",)),), ": adapter vllm tasks: embedding came"),
        ((vllm(tasks=("a", "b")),), (vllm(tasks=("b", "a")),), ": adapter vllm tasks in another order"),
        ((), (VLLM,), ": adapter vllm came"),
        ((VLLM,), (), ": adapter vllm went"),
        ((), (vllm(name="x\x1b[2J"),), ": adapter x came"),
        (
            tuple(vllm(name=f"a{number}") for number in range(6)),
            (),
            ": adapter a0 went; adapter a1 went; adapter a2 went; adapter a3 went; 2 adapters more",
        ),
    ],
)
def test_what_changed_in_another_adapter_explains_the_environments_identity(
    before: tuple[AdapterFacts, ...], after: tuple[AdapterFacts, ...], said: str
) -> None:
    assert of_fact("environment", declaring(*before), declaring(*after), ADAPTER) == said


def test_a_fact_that_says_all_itself_gets_nothing_added() -> None:
    assert of_fact("driver", declaring(), declaring(version="7"), ADAPTER) == ""
    assert of_fact("environment", declaring(), declaring(version="7"), ADAPTER) == ""
