"""What a node says about itself: who it is in this life, what it can do, and on which hardware."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from bus.messages.base import Line, Message, Moment, Natural, Positive, Record, Token
from bus.messages.profiles import RuntimeEnvironment

# What a consumer's `max_ack_pending` is made from; no node works on more at once.
MAX_SLOTS: Final = 1_024
Slots = Annotated[int, Meta(ge=1, le=MAX_SLOTS)]


class GpuFacts(Record, frozen=True, kw_only=True):
    """One card: identity and what compatibility depends on (spec A7)."""

    uuid: Line
    name: Line
    memory_total_bytes: Natural | None = None
    compute_capability: Line | None = None


class HardwareFacts(Record, frozen=True, kw_only=True):
    """The machine. `gpu_reason` says why there is no card to speak of, when there is none."""

    cpu_model: Line
    cpu_count: Natural
    memory_total_bytes: Natural
    memory_available_bytes: Natural = 0
    gpus: Annotated[tuple[GpuFacts, ...], Meta(max_length=64)] = ()
    driver_version: Line | None = None
    cuda_version: Line | None = None
    gpu_reason: Line | None = None


class ActiveJob(Record, frozen=True, kw_only=True):
    """A job this node works on now."""

    job_id: Token
    lease_id: Token
    attempt: Positive


class NodeInventory(Message, tag="node.inventory.v1", frozen=True, kw_only=True):
    """A node's whole picture; the last one per node is kept in the inventory stream."""

    node: Token
    boot_id: Token
    sequence: Natural
    at: Moment
    started_at: Moment
    agent_version: Line
    capabilities: Annotated[tuple[Line, ...], Meta(max_length=64)]
    environment: RuntimeEnvironment
    hardware: HardwareFacts
    slots: Slots
    active: Annotated[tuple[ActiveJob, ...], Meta(max_length=1_024)] = ()


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
