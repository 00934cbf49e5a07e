"""The fingerprint is canonical, rests on facts alone, and says in words what changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.inventory import NodeView
from bus.messages.profiles import RuntimeProfile
from controller.fingerprint import changes, facts_of, fingerprint_of
from tests.support.ledger import card, environment, hardware, inventory, with_adapter


def facts(**given: Any) -> dict[str, str]:
    said = given.pop("inventory", inventory())
    view = NodeView(name="local", enabled=True, lab_eligible=True, liveness="online", inventory=said)
    values: dict[str, Any] = {
        "set_digest": "sha256:a",
        "set_evidence": "sha256:e",
        "location": "models/x",
        "pickle_approved": False,
        "profile_id": "sha256:p",
        "profile": RuntimeProfile(name="cpu"),
        "node": msgspec.structs.replace(view, **given.pop("node", {})),
    }
    return facts_of(**{**values, **given})


@pytest.mark.req("A1", "A18")
def test_the_same_facts_give_the_same_fingerprint_in_any_order() -> None:
    one = facts()
    other = dict(reversed(one.items()))
    assert fingerprint_of(one) == fingerprint_of(other)
    assert fingerprint_of(one).startswith("sha256:")
    assert changes(one, other) == ()


@pytest.mark.req("A18")
@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"set_digest": "sha256:b"}, "set"),
        ({"set_evidence": "sha256:f"}, "set evidence"),
        ({"location": None}, "set location"),
        ({"pickle_approved": True}, "pickle approval"),
        ({"profile_id": "sha256:q"}, "profile"),
        ({"node": {"enabled": False}}, "node enabled"),
        ({"node": {"lab_eligible": False}}, "node lab-eligible"),
        ({"inventory": inventory(capabilities=())}, "node probes"),
        ({"inventory": inventory(environment=environment(python="3.12.1"))}, "environment"),
        ({"inventory": inventory(hardware=hardware(cpu_model="Other"))}, "cpu model"),
        ({"inventory": inventory(hardware=hardware(driver_version="1"))}, "driver"),
        ({"inventory": inventory(hardware=hardware(cuda_version="13"))}, "cuda"),
        ({"inventory": inventory(hardware=hardware(gpus=(card(),)))}, "gpus"),
    ],
)
def test_each_fact_counts_and_is_named(given: dict[str, Any], fact: str) -> None:
    before, after = facts(), facts(**given)
    assert fingerprint_of(before) != fingerprint_of(after)
    assert changes(before, after) == (f"{fact} changed from {before[fact]} to {after[fact]}",)


@pytest.mark.req("A18")
def test_liveness_free_memory_boots_and_clocks_do_not_count() -> None:
    moved = inventory(
        boot_id="boot9",
        sequence=99,
        at=ids.now(),
        slots=7,
        hardware=hardware(memory_available_bytes=1),
    )
    assert facts() == facts(inventory=moved, node={"liveness": "offline", "boot_id": "boot9"})


@pytest.mark.req("A18")
def test_the_order_of_cards_does_not_count_and_a_new_adapter_version_counts_twice() -> None:
    two = (card(), card(uuid="GPU-2"))
    assert facts(inventory=inventory(hardware=hardware(gpus=two))) == facts(
        inventory=inventory(hardware=hardware(gpus=two[::-1]))
    )
    newer = facts(inventory=with_adapter(inventory(), version="7"))
    assert [line.split(" changed")[0] for line in changes(facts(), newer)] == ["environment", "adapter version"]


def test_facts_that_only_one_side_knows_are_named_too() -> None:
    assert changes({"a": "1"}, {"b": "2"}) == ("a changed from 1 to none", "b changed from none to 2")


def test_a_node_without_inventory_has_no_facts() -> None:
    with pytest.raises(ModelForgeError) as caught:
        facts(inventory=None)
    assert caught.value.code is ErrorCode.NODE_UNKNOWN
