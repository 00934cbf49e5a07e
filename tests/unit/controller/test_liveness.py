"""Is a node there, and which life of it speaks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bus.messages.inventory import ActiveJob, HardwareFacts, NodeInventory
from bus.messages.profiles import RuntimeEnvironment
from controller.liveness import Hello, classify, decide_hello, judge_inventory

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
INVENTORY = NodeInventory(
    node="local", boot_id="one", sequence=5, at=NOW, started_at=NOW, agent_version="0.1.0",
    capabilities=("runtime.probe.v1",), slots=2,
    environment=RuntimeEnvironment(python="3.11", platform="linux", packages={}, adapters=()),
    hardware=HardwareFacts(cpu_model="x", cpu_count=2, memory_total_bytes=100),
)  # fmt: skip


@pytest.mark.parametrize(
    ("age_s", "word"), [(0, "online"), (10, "online"), (10.1, "doubtful"), (15, "doubtful"), (15.1, "offline")]
)
def test_silence_makes_doubtful_then_offline(age_s: float, word: str) -> None:
    seen = NOW - timedelta(seconds=age_s)
    assert classify(seen, NOW, doubtful_after_s=10, offline_after_s=15) == word


def test_a_node_that_never_spoke_is_offline() -> None:
    assert classify(None, NOW, doubtful_after_s=10, offline_after_s=15) == "offline"


def test_hello() -> None:
    assert decide_hello(None, "one", is_dead=False) is Hello.ADMIT
    assert decide_hello("one", "one", is_dead=False) is Hello.GREET
    assert decide_hello("one", "two", is_dead=False) is Hello.CONTEST
    assert decide_hello("two", "one", is_dead=True) is Hello.DEAD


def newer(**changes: Any) -> NodeInventory:
    return msgspec.structs.replace(INVENTORY, sequence=6, **changes)


@pytest.mark.req("A18")
def test_new_facts_are_a_change_and_free_memory_is_not() -> None:
    busy = newer(active=(ActiveJob(job_id="prb-0123456789", lease_id="lse-0123456789", attempt=1),))
    assert judge_inventory(INVENTORY, busy, "one", is_dead=False).changed is False
    driver = newer(hardware=msgspec.structs.replace(INVENTORY.hardware, driver_version="600.1"))
    assert judge_inventory(INVENTORY, driver, "one", is_dead=False).changed is True
    assert judge_inventory(None, INVENTORY, "one", is_dead=False).changed is True


def test_an_older_inventory_never_replaces_a_newer_one() -> None:
    assert judge_inventory(newer(), INVENTORY, "one", is_dead=False).accepted is False
    assert judge_inventory(INVENTORY, INVENTORY, "one", is_dead=False).accepted is False
    assert judge_inventory(newer(boot_id="zero"), INVENTORY, "one", is_dead=False).accepted is True


def test_only_the_admitted_boot_is_believed() -> None:
    assert judge_inventory(INVENTORY, newer(), "two", is_dead=False).accepted is False
    assert judge_inventory(INVENTORY, newer(), None, is_dead=False).accepted is False
    assert judge_inventory(INVENTORY, newer(), "one", is_dead=True).accepted is False
