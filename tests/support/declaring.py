"""A node that declares adapters, for what the command line says about them."""

from __future__ import annotations

from datetime import UTC, datetime

from bus.messages.inventory import HardwareFacts, NodeInventory, NodeView
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def declaring(*adapters: AdapterFacts, name: str = "n") -> NodeView:
    """An online node with these adapters and nothing else."""
    inventory = NodeInventory(
        node=name,
        boot_id="boot",
        sequence=1,
        at=AT,
        started_at=AT,
        agent_version="1",
        capabilities=(),
        environment=RuntimeEnvironment(python="3.11", platform="linux", packages={}, adapters=adapters),
        hardware=HardwareFacts(cpu_model="c", cpu_count=1, memory_total_bytes=1, memory_available_bytes=1),
        slots=1,
    )
    return NodeView(name=name, enabled=True, lab_eligible=True, liveness="online", inventory=inventory)
