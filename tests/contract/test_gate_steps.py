"""No gate is entered without the one before it: each step that is skipped closes the way (spec G1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.gates import Assessment
from bus.messages.inventory import NodeInventory
from bus.states import ProbeState
from controller.gates import candidates as candidate_gate
from controller.store import assessments, sets
from tests.support.gates import counts, refused
from tests.support.ledger import (
    NODE,
    PATH,
    WHOLE_RUN,
    Lab,
    environment,
    hardware,
    inventory,
    model_files,
    open_lab,
    safetensors_bytes,
    with_adapter,
)


async def completed(lab: Lab) -> None:
    """Nothing is skipped: a probe passes every gate and ends well."""
    assessment = await lab.ready()
    await lab.run((await lab.queue(assessment.id)).id, *WHOLE_RUN)


async def without_a_set(lab: Lab) -> None:
    await lab.hello()
    await lab.profile()
    await lab.assess("sha256:" + "0" * 64)


async def without_a_profile(lab: Lab) -> None:
    await lab.hello()
    await lab.assess(await lab.scan())


async def without_a_node(lab: Lab) -> None:
    await lab.profile()
    await lab.scan()


async def without_a_place(lab: Lab) -> None:
    """The set was on record once; nothing lies there now."""
    await lab.ready()
    digest = (await lab.call("artifacts.list", api.Page())).sets[0].digest
    await lab.scan(model_files(**{"README.md": b"another set at the same place"}))
    await lab.queue((await lab.assess(digest)).id)


async def without_an_assessment(lab: Lab) -> None:
    await lab.ready()
    await lab.queue("asm-0000000000")


async def with_a_stale_assessment(lab: Lab) -> None:
    assessment = await lab.ready()
    await lab.hello(inventory(sequence=2, hardware=hardware(driver_version="570.1")))
    await lab.queue(assessment.id)


async def with_a_blocked_assessment(lab: Lab) -> None:
    assessment = await lab.ready()
    await lab.profile(name="gpu", device="cuda")
    await lab.queue((await lab.assess(assessment.set_digest, "gpu")).id)


async def with_quarantined_bytes(lab: Lab) -> None:
    assessment = await lab.ready()
    request = api.QuarantineRequest(set_digest=assessment.set_digest, path="model.safetensors", reason="bad")
    await lab.call("artifacts.quarantine", request)
    await lab.queue((await lab.assess(assessment.set_digest)).id)


async def with_a_corrupt_place(lab: Lab) -> None:
    """A later read of the only place found other bytes than the set's."""
    assessment = await lab.ready()
    found = {"file": "model.safetensors", "problem": "other bytes", "found_by": "prb-0000000000"}
    await lab.store.write(lambda tx: sets.corrupt(tx, NODE, PATH, **found))
    await lab.queue((await lab.assess(assessment.set_digest)).id)


async def without_an_approval(lab: Lab) -> None:
    await lab.hello()
    await lab.profile()
    await lab.queue((await lab.assess(await lab.scan())).id)


async def with_an_approval_of_another_set(lab: Lab) -> None:
    await lab.hello()
    await lab.profile()
    await lab.approve(await lab.scan({"model.safetensors": safetensors_bytes(3)}, path="other"))
    await lab.queue((await lab.assess(await lab.scan())).id)


async def with_a_revoked_approval(lab: Lab) -> None:
    assessment = await lab.ready()
    [approval] = (await lab.call("approvals.list", api.Page())).approvals
    await lab.call("approvals.revoke", api.RevokeRequest(id=approval.id, reason="a flaw"))
    await lab.queue(assessment.id)


async def without_a_completed_probe(lab: Lab) -> None:
    probe = await lab.queue((await lab.ready()).id)
    await lab.run(probe.id, *WHOLE_RUN[:-1])
    await lab.store.write(lambda tx: candidate_gate.make(tx, probe.id))


async def without_a_probe(lab: Lab) -> None:
    await lab.ready()
    await lab.store.write(lambda tx: candidate_gate.make(tx, "prb-0000000000"))


SKIPS: dict[str, tuple[Callable[[Lab], Awaitable[None]], ErrorCode]] = {
    "set": (without_a_set, ErrorCode.UNKNOWN_ID),
    "profile": (without_a_profile, ErrorCode.UNKNOWN_ID),
    "node": (without_a_node, ErrorCode.NODE_UNKNOWN),
    "place": (without_a_place, ErrorCode.ASSESSMENT_BLOCKED),
    "assessment": (without_an_assessment, ErrorCode.UNKNOWN_ID),
    "current assessment": (with_a_stale_assessment, ErrorCode.ASSESSMENT_STALE),
    "compatibility": (with_a_blocked_assessment, ErrorCode.ASSESSMENT_BLOCKED),
    "integrity": (with_a_corrupt_place, ErrorCode.ASSESSMENT_BLOCKED),
    "quarantine": (with_quarantined_bytes, ErrorCode.ASSESSMENT_BLOCKED),
    "approval": (without_an_approval, ErrorCode.NOT_APPROVED),
    "approval of this set": (with_an_approval_of_another_set, ErrorCode.NOT_APPROVED),
    "valid approval": (with_a_revoked_approval, ErrorCode.NOT_APPROVED),
    "completion": (without_a_completed_probe, ErrorCode.ILLEGAL_TRANSITION),
    "probe": (without_a_probe, ErrorCode.UNKNOWN_ID),
}


@pytest.mark.req("G1")
@pytest.mark.parametrize("step", sorted(SKIPS))
async def test_each_step_that_is_skipped_closes_the_way(tmp_path: Path, step: str) -> None:
    skip, code = SKIPS[step]
    async with open_lab(tmp_path) as lab:
        await refused(skip(lab), code)
        found = await counts(lab)
        assert found["candidates"] == 0
        assert found["probes"] == (step == "completion")
    other = tmp_path / "whole"
    other.mkdir()
    async with open_lab(other) as lab:
        await completed(lab)
        assert (await counts(lab))["candidates"] == 1, "with every step the way is open"


def vllm_node(**changes: Any) -> NodeInventory:
    """A node that declares vLLM, whose assessments make no claim."""
    said = inventory(environment=environment(packages={**environment().packages, "vllm": "0.9.0"}))
    return with_adapter(said, name="vllm", version="0.9.0", **changes)


async def assessed_for_vllm(lab: Lab, **changes: Any) -> Assessment:
    await lab.hello(vllm_node(**changes))
    digest = await lab.scan()
    await lab.profile(adapter="vllm")
    await lab.approve(digest)
    return await lab.assess(digest)


@pytest.mark.req("G1", "A14")
async def test_what_only_a_probe_can_tell_may_be_probed(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed_for_vllm(lab)
        assert assessment.verdict == "requires_probe"
        assert (await lab.queue(assessment.id)).state is ProbeState.QUEUED


@pytest.mark.req("G1")
async def test_an_adapter_that_only_inspects_is_refused_before_anything_is_queued(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed_for_vllm(lab, inspect_only=True, executable=False, reason="inspects only")
        assert assessment.verdict == "requires_probe"
        before = await counts(lab)
        error = await refused(lab.queue(assessment.id), ErrorCode.RUNTIME_INCOMPATIBLE)
        assert f"the adapter vllm cannot be executed on {NODE}" in error.message
        assert "cannot run it anywhere" in error.message
        assert await counts(lab) == before


@pytest.mark.req("G1")
async def test_whether_the_node_can_run_it_is_asked_of_the_node_and_not_of_the_verdict(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        blocked = await assessed_for_vllm(lab, executable=False, reason="no compiler")
        assert blocked.verdict == "blocked"
        open_word = msgspec.structs.replace(blocked, id="asm-0000000001", verdict="requires_probe", findings=())
        await lab.store.write(lambda tx: assessments.insert(tx, open_word))
        error = await refused(lab.queue(open_word.id), ErrorCode.RUNTIME_INCOMPATIBLE)
        assert "no compiler" in error.message
