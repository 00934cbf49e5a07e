"""Declared and proven stand apart: a proof is what a completed probe showed under exactly the facts now (spec A2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.evidence import MemorySource, MemorySummary, ProbeEvidence, Timings
from bus.messages.gates import Assessment, Proof
from bus.states import ProbeEvent
from controller.store import probes
from tests.support.gates import counts, refused
from tests.support.ledger import WHOLE_RUN, Lab, environment, hardware, inventory, open_lab, with_adapter
from tests.support.proven import proven_evidence

PEAK_BYTES = 600_000_000


def measured(**changes: Any) -> ProbeEvidence:
    """Evidence of a pass with a load time, an inference time and a peak."""
    values: dict[str, Any] = {
        "timings": Timings(load_ms=1_200.5, inference_ms=8.25),
        "memory": MemorySummary(source=MemorySource.PROCESS_RSS, peak_bytes=PEAK_BYTES),
    }
    return msgspec.structs.replace(proven_evidence(), **{**values, **changes})


async def shown(lab: Lab, assessment: Assessment) -> Assessment:
    found: Assessment = await lab.call("assessments.show", api.ById(id=assessment.id))
    return found


async def proof(lab: Lab, assessment: Assessment) -> Proof | None:
    """The proof as `show` gives it, which is the one of the list."""
    found = (await shown(lab, assessment)).proof
    listed = (await lab.call("assessments.list", api.AssessmentsRequest())).assessments
    assert [one.proof for one in listed if one.id == assessment.id] == [found]
    return found


async def probed(lab: Lab, assessment: Assessment, evidence: ProbeEvidence | None = None) -> str:
    probe = await lab.queue(assessment.id)
    await lab.run(probe.id, *WHOLE_RUN, evidence=evidence or measured())
    return probe.id


@pytest.mark.req("A2", "A11")
async def test_what_is_declared_and_what_is_proven_stand_apart(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        assert assessment.proof is None
        assert assessment.declared is not None
        assert (assessment.declared.adapter, assessment.declared.executable) == ("sentence_transformers", True)
        assert assessment.hardware == hardware()
        before = await lab.rows("SELECT body FROM assessments")
        probe_id = await probed(lab, assessment)
        after = await shown(lab, assessment)
        assert after.verdict == assessment.verdict
        assert after.declared == assessment.declared
        found = await proof(lab, assessment)
        assert found is not None
        probe = await lab.call("probes.show", api.ById(id=probe_id))
        assert found == Proof(
            probe_id=probe_id,
            candidate_id=probe.candidate_id,
            task="embedding",
            fingerprint=assessment.fingerprint,
            completed_at=probe.finished_at,
            load_ms=1_200.5,
            inference_ms=8.25,
            memory_bytes=PEAK_BYTES,
            memory_source=MemorySource.PROCESS_RSS,
        )
        assert found.kind == "measured"
        assert await lab.rows("SELECT body FROM assessments") == before, "a proof is derived, never stored"


@pytest.mark.req("A2")
@pytest.mark.parametrize("last", [ProbeEvent.CANCEL, ProbeEvent.FAIL])
async def test_a_probe_that_did_not_complete_proves_nothing(tmp_path: Path, last: ProbeEvent) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN[:-1])
        assert await proof(lab, assessment) is None
        await lab.run(probe.id, last)
        assert await proof(lab, assessment) is None


@pytest.mark.req("A2", "A18")
async def test_a_proof_goes_with_its_facts_and_comes_back_with_them(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe_id = await probed(lab, assessment)
        await lab.hello(inventory(sequence=2, hardware=hardware(driver_version="575.51")))
        assert await proof(lab, assessment) is None
        again = await lab.assess(assessment.set_digest)
        assert again.proof is None, "nothing was probed under this driver"
        await lab.hello(inventory(sequence=3))
        found = await proof(lab, assessment)
        assert found is not None
        assert found.probe_id == probe_id


@pytest.mark.req("A18", "G4")
async def test_a_proof_whose_approval_was_revoked_stands_and_opens_no_gate(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe_id = await probed(lab, assessment)
        approval_id = (await lab.call("probes.show", api.ById(id=probe_id))).approval_id
        await lab.call("approvals.revoke", api.RevokeRequest(id=approval_id, reason="a flaw"))
        found = await proof(lab, assessment)
        assert found is not None, "what was measured was measured"
        assert found.candidate_id is not None
        assert (await shown(lab, assessment)).approvals == ()
        stale = (f"the approval {approval_id} was revoked",)
        assert (await lab.call("candidates.show", api.ById(id=found.candidate_id))).stale_because == stale
        await refused(lab.queue(assessment.id), ErrorCode.NOT_APPROVED)
        await lab.approve(assessment.set_digest)
        assert (await lab.queue(assessment.id)).approval_id != approval_id
        assert (await lab.call("candidates.show", api.ById(id=found.candidate_id))).stale_because == stale


@pytest.mark.req("A2")
async def test_a_second_assessment_of_the_same_facts_is_proven_at_once(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe_id = await probed(lab, assessment)
        again = await lab.assess(assessment.set_digest)
        assert again.proof is not None
        assert again.proof.probe_id == probe_id
        other = await lab.profile(name="other", batch_size=2)
        assert (await lab.assess(assessment.set_digest, other.id)).proof is None, "another profile is another question"
        listed = (await lab.call("assessments.list", api.AssessmentsRequest())).assessments
        assert [one.proof is not None for one in listed] == [False, True, True], "each has its own"
        strange = "sha256:" + "0" * 64
        assert await lab.store.read(lambda tx: probes.proofs(tx, {strange})) == {}
        copy = await lab.scan({"model.safetensors": b"", "config.json": b"{}"}, path="elsewhere")
        assert (await lab.assess(copy)).proof is None, "so is another set"


@pytest.mark.req("A2")
async def test_the_newest_completed_probe_counts(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        await probed(lab, assessment)
        newest = await probed(lab, assessment, measured(timings=Timings(load_ms=7.0)))
        found = await proof(lab, assessment)
        assert found is not None
        assert (found.probe_id, found.load_ms, found.inference_ms) == (newest, 7.0, None)


@pytest.mark.req("A2", "A14", "G1")
async def test_a_proof_stands_beside_a_verdict_that_makes_no_claim(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        packages = {**environment().packages, "vllm": "0.9.0"}
        said = inventory(environment=environment(packages=packages))
        await lab.hello(with_adapter(said, name="vllm", version="0.9.0"))
        digest = await lab.scan()
        await lab.profile(adapter="vllm")
        assessment = await lab.assess(digest)
        assert assessment.verdict == "requires_probe", assessment.findings
        await lab.approve(digest)
        probe_id = await probed(lab, assessment)
        after = await shown(lab, assessment)
        assert after.verdict == "requires_probe"
        assert after.proof is not None
        assert after.proof.probe_id == probe_id


@pytest.mark.req("A2")
async def test_a_proof_without_evidence_says_that_nothing_is_known(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        found = await proof(lab, assessment)
        assert found is not None
        assert (found.load_ms, found.memory_bytes, found.memory_source) == (None, None, MemorySource.UNAVAILABLE)


async def test_an_adapter_that_the_node_does_not_declare_is_declared_by_nobody(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello(with_adapter(inventory(), name="something_else"))
        digest = await lab.scan()
        await lab.profile()
        before = await counts(lab)
        assessment = await lab.assess(digest)
        assert assessment.verdict == "blocked"
        assert assessment.declared is None or not assessment.declared.executable
        assert (await counts(lab))["candidates"] == before["candidates"]
