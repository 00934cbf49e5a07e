"""Is a node there, and which life of it speaks? Decided purely: rows and a moment in, a word out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from bus.messages.inventory import NodeInventory

Liveness = Literal["online", "doubtful", "offline"]


def classify(
    last_seen_at: datetime | None, at: datetime, *, doubtful_after_s: float, offline_after_s: float
) -> Liveness:
    """A node's liveness from the age of its last word."""
    if last_seen_at is None:
        return "offline"
    age_s = (at - last_seen_at).total_seconds()
    if age_s <= doubtful_after_s:
        return "online"
    return "doubtful" if age_s <= offline_after_s else "offline"


class Hello(StrEnum):
    """What a hello leads to."""

    ADMIT = "admit"  # the node's first boot, or nobody is admitted
    GREET = "greet"  # the admitted boot says hello again
    CONTEST = "contest"  # another boot is admitted: it must prove that it lives
    DEAD = "dead"  # this boot was replaced once and for ever


def decide_hello(admitted_boot: str | None, boot_id: str, *, is_dead: bool) -> Hello:
    """What becomes of a boot that says hello while `admitted_boot` speaks for the node."""
    if is_dead:
        return Hello.DEAD
    if admitted_boot is None:
        return Hello.ADMIT
    return Hello.GREET if admitted_boot == boot_id else Hello.CONTEST


@dataclass(frozen=True, slots=True)
class Word:
    """What an inventory message is worth."""

    accepted: bool
    changed: bool = False
    reason: str = ""


def judge_inventory(
    stored: NodeInventory | None,
    said: NodeInventory,
    admitted_boot: str | None,
    *,
    is_dead: bool,
) -> Word:
    """May this inventory replace the stored one, and does it say anything new?

    Free memory and the list of running jobs move all the time; they are stored, but they are no change of the node.
    """
    if is_dead:
        return Word(accepted=False, reason="this boot was superseded")
    if admitted_boot != said.boot_id:
        return Word(accepted=False, reason="this boot was not admitted")
    if stored is not None and stored.boot_id == said.boot_id and said.sequence <= stored.sequence:
        return Word(accepted=False, reason="a newer inventory is known")
    return Word(accepted=True, changed=stored is None or facts_of(stored) != facts_of(said))


def facts_of(inventory: NodeInventory) -> tuple[object, ...]:
    """The part of an inventory whose change is audited: another installation or another machine, as operators see it.

    What evidence rests on is the fingerprint's choice, see `controller.fingerprint`.
    """
    hardware = inventory.hardware
    return (
        inventory.agent_version,
        inventory.capabilities,
        inventory.environment,
        inventory.slots,
        hardware.cpu_model,
        hardware.cpu_count,
        hardware.memory_total_bytes,
        hardware.gpus,
        hardware.driver_version,
        hardware.cuda_version,
        hardware.gpu_reason,
    )
