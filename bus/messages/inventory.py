"""What a node says about itself: who it is in this life, what it can do, and on which hardware."""

from __future__ import annotations

from typing import Literal

from bus.messages.base import Message, Moment, Record
from bus.messages.gates import Natural, RuntimeEnvironment


class GpuFacts(Record, frozen=True, kw_only=True):
    """One card: identity and what compatibility depends on (spec A7)."""

    uuid: str
    name: str
    memory_total_bytes: int | None = None
    compute_capability: str | None = None


class HardwareFacts(Record, frozen=True, kw_only=True):
    """The machine. `gpu_reason` says why there is no card to speak of, when there is none."""

    cpu_model: str
    cpu_count: Natural
    memory_total_bytes: Natural
    memory_available_bytes: Natural = 0
    gpus: tuple[GpuFacts, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    gpu_reason: str | None = None


class ActiveJob(Record, frozen=True, kw_only=True):
    """A job this node works on now."""

    job_id: str
    lease_id: str
    attempt: int


class NodeInventory(Message, tag="node.inventory.v1", frozen=True, kw_only=True):
    """A node's whole picture; the last one per node is kept in the inventory stream."""

    node: str
    boot_id: str
    sequence: Natural
    at: Moment
    started_at: Moment
    agent_version: str
    capabilities: tuple[str, ...]
    environment: RuntimeEnvironment
    hardware: HardwareFacts
    slots: Natural
    active: tuple[ActiveJob, ...] = ()


class NodeView(Record, frozen=True, kw_only=True):
    """A node as the controller sees it. `liveness` is derived from the age of its last word."""

    name: str
    enabled: bool
    lab_eligible: bool
    liveness: Literal["online", "doubtful", "offline"]
    boot_id: str | None = None
    last_seen_at: Moment | None = None
    environment_id: str | None = None
    inventory: NodeInventory | None = None
