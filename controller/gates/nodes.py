"""Which nodes may be used: an operator's word, audited, and a fact that evidence rests on (spec A6, A18)."""

from __future__ import annotations

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import NodeFlagsRequest
from bus.messages.inventory import NodeView
from bus.subjects import Caller
from controller.gates.caller import actor_of, checked_reason
from controller.store import nodes
from controller.store.nodes import Silence
from controller.store.tx import Tx


def set_flags(tx: Tx, silence: Silence, caller: Caller, request: NodeFlagsRequest) -> NodeView:
    """Enable or disable a node, for work or for the lab; what is so already changes nothing and is not audited.

    Both flags are facts of the fingerprint: what rests on the node is stale until they are as they were. A probe that
    waits is refused at its claim; one that runs is not ended by this (cancel it).

    Raises:
        ModelForgeError: NODE_UNKNOWN; INVALID_ARGUMENT without a reason or without a flag.
    """
    reason = checked_reason(request.reason)
    if request.enabled is None and request.lab_eligible is None:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "name what to set: enabled, lab_eligible or both")
    before = nodes.view(tx, request.name, silence)
    enabled = before.enabled if request.enabled is None else request.enabled
    lab_eligible = before.lab_eligible if request.lab_eligible is None else request.lab_eligible
    if (enabled, lab_eligible) == (before.enabled, before.lab_eligible):
        return before
    tx.run("nodes.set_flags", name=before.name, enabled=enabled, lab_eligible=lab_eligible)
    after = nodes.view(tx, before.name, silence)
    detail = {"enabled": enabled, "lab_eligible": lab_eligible, "reason": reason}
    tx.audit("node", before.name, "flags", actor_of(caller), detail=detail, node=after)
    return after
