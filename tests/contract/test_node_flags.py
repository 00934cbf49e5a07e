"""Which nodes may be used: an operator's word with a reason, and what it does to evidence and to what waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.errors import ErrorCode
from bus.messages import api
from controller.gates import probes as probe_gate
from tests.support.gates import counts, refused
from tests.support.ledger import NODE, Lab, open_lab


async def put(lab: Lab, **fields: Any) -> Any:
    return await lab.call("nodes.set", api.NodeFlagsRequest(**{"name": NODE, "reason": "maintenance", **fields}))


async def test_a_flag_that_is_not_named_stays(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        off = await put(lab, enabled=False)
        assert (off.name, off.enabled, off.lab_eligible) == (NODE, False, True)
        out = await put(lab, lab_eligible=False)
        assert (out.enabled, out.lab_eligible) == (False, False)
        back = await put(lab, enabled=True, lab_eligible=True)
        assert (back.enabled, back.lab_eligible, back.liveness) == (True, True, "online")
        [newest, *_] = (await lab.call("audit.list", api.AuditRequest(id=NODE))).entries
        assert newest.detail == {"enabled": "True", "lab_eligible": "True", "reason": "maintenance"}


async def test_a_word_without_reason_flag_or_node_changes_nothing(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        before = await counts(lab)
        await refused(put(lab, enabled=False, reason=" "), ErrorCode.INVALID_ARGUMENT)
        await refused(put(lab), ErrorCode.INVALID_ARGUMENT)
        await refused(put(lab, name="nobody", enabled=False), ErrorCode.NODE_UNKNOWN)
        await put(lab, enabled=True)
        assert await counts(lab) == before


@pytest.mark.req("A6", "A18", "A19")
@pytest.mark.parametrize("flag", ["enabled", "lab_eligible"])
async def test_evidence_is_stale_while_its_node_may_not_be_used_and_what_waits_is_not_claimed(
    tmp_path: Path, flag: str
) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        waiting = await lab.queue(assessment.id)
        await put(lab, **{flag: False})
        assert (await lab.call("assessments.show", api.ById(id=assessment.id))).stale_because
        await refused(lab.queue(assessment.id), ErrorCode.ASSESSMENT_STALE)
        obstacle = await lab.store.read(lambda tx: probe_gate.still_allowed(tx, waiting.id))
        assert obstacle is not None
        assert obstacle.code == ErrorCode.ASSESSMENT_STALE
        blocked = await lab.assess(assessment.set_digest)
        assert blocked.verdict == "blocked"
        [remedy] = [found.remedy for found in blocked.findings if found.severity == "blocker"]
        assert "modelforge node enable" in remedy
        await put(lab, **{flag: True})
        assert (await lab.call("assessments.show", api.ById(id=assessment.id))).stale_because == ()
        assert await lab.store.read(lambda tx: probe_gate.still_allowed(tx, waiting.id)) is None
