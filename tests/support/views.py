"""Small views of probes and nodes, as the controller would tell them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.messages.profiles import Budgets
from bus.states import ProbeState

_AT = datetime(2026, 1, 1, tzinfo=UTC)
_DIGEST = "sha256:" + "0" * 64


def probe_view(probe_id: str, state: ProbeState = ProbeState.QUEUED) -> ProbeView:
    return ProbeView(
        id=probe_id,
        state=state,
        node="a",
        location="model",
        set_digest=_DIGEST,
        profile_id=_DIGEST,
        profile_name="default",
        assessment_id="asm-0000000000",
        approval_id="apv-0000000000",
        attempt=0,
        max_attempts=3,
        queued_at=_AT,
        queued_by="alice",
        state_at=_AT,
        start_method="template",
        budgets=Budgets(),
    )


def node_view(name: str, liveness: Literal["online", "doubtful", "offline"] = "online") -> NodeView:
    return NodeView(name=name, enabled=True, lab_eligible=True, liveness=liveness)
