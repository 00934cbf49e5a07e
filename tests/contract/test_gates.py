"""The gates: no step can be skipped, an approval binds one exact set, staleness and revocation close the way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from bus.codec import decode
from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.events import Event
from bus.messages.gates import Purpose
from bus.messages.jobs import CancelCommand, ProbeJob
from bus.states import JobState, ProbeEvent, ProbeState
from controller.gates import candidates as candidate_gate
from controller.gates import probes as probe_gate
from tests.support.gates import counts, refused
from tests.support.ledger import (
    MIB,
    NODE,
    PATH,
    WHOLE_RUN,
    Lab,
    card,
    hardware,
    inventory,
    model_files,
    open_lab,
    weights_bytes,
    with_adapter,
)


@pytest.mark.req("G1", "G2", "A1")
async def test_every_gate_is_a_row_of_its_own_that_names_the_one_before(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        shown = await lab.call("probes.show", api.ById(id=probe.id))
        candidate = await lab.call("candidates.show", api.ById(id=shown.candidate_id))
    assert candidate.probe_id == probe.id
    assert probe.assessment_id == assessment.id
    assert probe.approval_id in assessment.approvals or probe.approval_id.startswith("apv-")
    assert (candidate.set_digest, candidate.profile_id, candidate.node) == (
        assessment.set_digest,
        assessment.profile_id,
        assessment.node,
    )
    assert candidate.fingerprint == assessment.fingerprint
    assert candidate.environment_id == assessment.environment_id
    assert (candidate.status, candidate.production, candidate.stale_because) == ("lab_ready", False, ())


@pytest.mark.req("G1", "G4")
async def test_no_step_can_be_skipped_and_a_refusal_writes_nothing(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await refused(lab.queue("asm-0000000000"), ErrorCode.UNKNOWN_ID)
        await lab.hello()
        digest = await lab.scan()
        await refused(lab.assess(digest), ErrorCode.UNKNOWN_ID)
        await lab.profile()
        assessment = await lab.assess(digest)
        before = await counts(lab)
        error = await refused(lab.queue(assessment.id), ErrorCode.NOT_APPROVED)
        assert "approve" in error.hint
        assert await counts(lab) == before
        others: tuple[Purpose, ...] = ("pickle", "production")
        for purpose in others:
            await lab.approve(digest, purpose)
        await refused(lab.queue(assessment.id), ErrorCode.ASSESSMENT_STALE)
        assessment = await lab.assess(digest)
        await refused(lab.queue(assessment.id), ErrorCode.NOT_APPROVED)
        await lab.approve(digest)
        assert (await lab.queue(assessment.id)).state is ProbeState.QUEUED


@pytest.mark.req("G4")
async def test_an_approval_binds_one_exact_set_and_says_who_when_and_why(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.ready()
        first = (await lab.call("approvals.list", api.Page())).approvals[0]
        assert (first.approved_by, first.reason, first.purpose) == ("alice", "reviewed", "lab_execution")
        again = await lab.call(
            "approvals.add",
            api.ApproveRequest(set_digest=first.set_digest, purpose="lab_execution", reason="other words"),
            user="bob",
        )
        assert again == first
        changed = await lab.scan(model_files(**{"model.safetensors": weights_bytes(1)}))
        assert changed != first.set_digest
        assessment = await lab.assess(changed)
        assert assessment.verdict == "compatible"
        await refused(lab.queue(assessment.id), ErrorCode.NOT_APPROVED)
        trail = await lab.call("audit.list", api.AuditRequest(id=first.id))
        assert [(entry.what, entry.actor, entry.detail["reason"]) for entry in trail.entries] == [
            ("added", "user:alice", "reviewed")
        ]


@pytest.mark.req("G4")
@pytest.mark.parametrize("reason", ["", "   ", "\n", "x" * 1_001])
async def test_an_approval_needs_a_reason(tmp_path: Path, reason: str) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        request = api.ApproveRequest(set_digest=digest, purpose="lab_execution", reason=reason)
        await refused(lab.call("approvals.add", request), ErrorCode.INVALID_ARGUMENT)
        assert (await counts(lab))["approvals"] == 0


async def test_a_production_approval_is_recorded_and_opens_nothing(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        await lab.approve(assessment.set_digest, "production")
        candidates = (await lab.call("candidates.list", api.Page())).candidates
        assert [(one.status, one.production) for one in candidates] == [("lab_ready", False)]


@pytest.mark.req("A18", "A19")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("driver", "driver changed from none to 570.1"),
        ("gpu", "gpu GPU-1 changed from absent to Test card"),
        ("adapter", "adapter version changed from 6.2.0 to 7.0.0"),
        ("disabled", "node enabled changed from yes to no"),
        ("ineligible", "node lab-eligible changed from yes to no"),
        ("memory", "host memory changed from 8 GiB to 16 GiB"),
        ("moved", f"set location changed from {PATH} to none"),
    ],
)
async def test_a_changed_fact_makes_all_prior_evidence_stale(tmp_path: Path, change: str, words: str) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        await change_fact(lab, change)
        error = await refused(lab.queue(assessment.id), ErrorCode.ASSESSMENT_STALE)
        assert words in error.message
        shown = await lab.call("assessments.show", api.ById(id=assessment.id))
        listed = (await lab.call("assessments.list", api.Page())).assessments[-1]
        candidate = (await lab.call("candidates.list", api.Page())).candidates[0]
        for reasons in (shown.stale_because, listed.stale_because, candidate.stale_because):
            assert any(reason.startswith(words) for reason in reasons), reasons
        stored = await lab.rows("SELECT body FROM assessments")
        assert json.loads(stored[0]["body"])["stale_because"] == [], "staleness is derived, never stored"


async def change_fact(lab: Lab, change: str) -> None:
    said = inventory(sequence=2)
    match change:
        case "driver":
            await lab.hello(msgspec.structs.replace(said, hardware=hardware(driver_version="570.1")))
        case "gpu":
            await lab.hello(msgspec.structs.replace(said, hardware=hardware(gpus=(card(),))))
        case "memory":
            await lab.hello(msgspec.structs.replace(said, hardware=hardware(memory_total_bytes=16_384 * MIB)))
        case "adapter":
            await lab.hello(with_adapter(said, version="7.0.0"))
        case "moved":
            await lab.scan(model_files(**{"README.md": b"another set at the same place"}))
        case _:
            enabled, eligible = change != "disabled", change != "ineligible"
            await lab.call(
                "nodes.set", api.NodeFlagsRequest(name=NODE, enabled=enabled, lab_eligible=eligible, reason="a test")
            )


@pytest.mark.req("A18")
async def test_liveness_and_free_memory_make_nothing_stale(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        await lab.hello(inventory(sequence=2, boot_id="boot2", hardware=hardware(memory_available_bytes=1)))
        assert (await lab.call("assessments.show", api.ById(id=assessment.id))).stale_because == ()


@pytest.mark.req("G1", "A6")
async def test_a_blocked_assessment_and_an_offline_node_queue_nothing(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.ready()
        await lab.profile(name="gpu", device="cuda")
        digest = (await lab.call("artifacts.list", api.Page())).sets[0].digest
        blocked = await lab.assess(digest, "gpu")
        assert blocked.verdict == "blocked"
        error = await refused(lab.queue(blocked.id), ErrorCode.ASSESSMENT_BLOCKED)
        assert "NO_GPU" in error.message
    async with open_lab(tmp_path, doubtful_after_s=0.000_001, offline_after_s=0.000_001) as lab:
        good = (await lab.call("assessments.list", api.Page())).assessments[1]
        await refused(lab.queue(good.id), ErrorCode.NODE_OFFLINE)
        late = await lab.assess(digest)
        assert [found.code for found in late.findings if found.severity == "blocker"] == ["NODE_OFFLINE"]


@pytest.mark.req("P5", "B1", "B4")
async def test_a_queued_probe_is_one_transaction_and_its_job_names_no_command(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        view = await lab.queue(assessment.id)
        rows = await lab.rows("SELECT topic, subject, payload, job_id FROM outbox WHERE job_id IS NOT NULL ORDER BY id")
        job = decode(rows[-1]["payload"], ProbeJob)
        stored = await lab.rows(f"SELECT payload FROM jobs WHERE id = '{view.id}'")  # noqa: S608
        last = (await lab.rows("SELECT payload FROM outbox ORDER BY id DESC LIMIT 1"))[0]["payload"]
        manifest = (await lab.call("artifacts.show", api.ById(id=view.set_digest))).manifest
    assert rows[-1]["subject"] == f"mf.jobs.{NODE}.work.{view.id}"
    assert stored[0]["payload"].encode() == rows[-1]["payload"]
    assert (job.location, job.set_digest, job.manifest) == (PATH, view.set_digest, manifest)
    assert job.manifest is not None
    assert job.manifest.digest() == job.set_digest
    assert job.profile.digest() == job.profile_id
    assert (job.environment_id, job.fingerprint) == (assessment.environment_id, assessment.fingerprint)
    assert job.probe_type == "embedding_fixed_input"
    words = set(msgspec.to_builtins(job)) | set(msgspec.to_builtins(job.profile))
    assert not words & {"command", "args", "argv", "module", "path", "script", "env", "entrypoint", "image"}
    event = decode(last, Event)
    assert (event.what, event.probe) == ("queued", view)


@pytest.mark.req("G1")
async def test_a_repeated_request_gives_the_same_probe(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        views = await asyncio.gather(*(lab.queue(assessment.id, "again") for _ in range(5)))
        assert len({view.id for view in views}) == 1
        assert (await counts(lab))["probes"] == 1
        other = api.QueueProbeRequest(assessment_id=assessment.id, request_id="again")
        assert (await lab.call("probes.queue", other, user="bob")).id != views[0].id
        second = await lab.assess(assessment.set_digest)
        await refused(lab.queue(second.id, "again"), ErrorCode.INVALID_ARGUMENT)
        await refused(lab.scan(request_id="again"), ErrorCode.INVALID_ARGUMENT)
        await refused(lab.queue(assessment.id, "x" * 65), ErrorCode.INVALID_ARGUMENT)


@pytest.mark.req("G5", "P10")
async def test_a_queued_probe_is_cancelled_at_once_and_never_becomes_a_candidate(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        view = await lab.call("probes.cancel", api.CancelRequest(id=probe.id, reason="wrong node"))
        assert (view.state, view.candidate_id) == (ProbeState.CANCELLED, None)
        assert view.failure.code == "CANCELLED"
        assert view.finished_at is not None
        assert lab.commands == []
        assert await lab.rows(f"SELECT 1 FROM outbox WHERE topic = 'job' AND job_id = '{probe.id}'") == []  # noqa: S608
        assert (await lab.rows(f"SELECT state FROM jobs WHERE id = '{probe.id}'"))[0]["state"] == JobState.CANCELLED  # noqa: S608
        error = await refused(lab.call("probes.cancel", api.CancelRequest(id=probe.id)), ErrorCode.JOB_TERMINAL)
        assert "cancelled" in error.message
        await refused(lab.store.write(lambda tx: candidate_gate.make(tx, probe.id)), ErrorCode.ILLEGAL_TRANSITION)


@pytest.mark.req("P10")
async def test_a_leased_probe_is_asked_to_end(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, ProbeEvent.CLAIM, ProbeEvent.LOAD)
        for _ in range(2):
            view = await lab.call("probes.cancel", api.CancelRequest(id=probe.id))
            assert (view.state, view.cancel_requested) == (ProbeState.LOADING, True)
        assert lab.commands == [(NODE, CancelCommand(job_id=probe.id))] * 2
        trail = await lab.call("audit.list", api.AuditRequest(id=probe.id))
        assert [entry.what for entry in trail.entries].count("cancel-requested") == 1
        await lab.run(probe.id, ProbeEvent.UNLOAD, ProbeEvent.CANCEL)
        assert (await counts(lab))["candidates"] == 0


@pytest.mark.req("G4")
async def test_a_revoked_approval_stops_a_waiting_probe_at_its_claim(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        assert await lab.store.write(lambda tx: probe_gate.still_allowed(tx, probe.id)) is None
        revoke = api.RevokeRequest(id=probe.approval_id, reason="found a flaw")
        revoked = await lab.call("approvals.revoke", revoke, user="bob")
        assert (revoked.revoked_by, revoked.revoke_reason) == ("bob", "found a flaw")
        failure = await lab.store.write(lambda tx: probe_gate.still_allowed(tx, probe.id))
        assert failure is not None
        assert failure.code == ErrorCode.NOT_APPROVED
        await refused(lab.call("approvals.revoke", revoke), ErrorCode.ILLEGAL_TRANSITION)
        fresh = await lab.approve(assessment.set_digest)
        assert fresh.id != probe.approval_id
        failure = await lab.store.write(lambda tx: probe_gate.still_allowed(tx, probe.id))
        assert failure is not None, "a new approval does not revive a probe that names the old one"


@pytest.mark.req("A18", "G4")
async def test_a_changed_node_stops_a_waiting_probe_and_a_revocation_marks_the_candidate(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        done, waiting = await lab.queue(assessment.id), await lab.queue(assessment.id)
        await lab.run(done.id, *WHOLE_RUN)
        await lab.call("approvals.revoke", api.RevokeRequest(id=done.approval_id, reason="x"))
        candidate = (await lab.call("candidates.list", api.Page())).candidates[0]
        assert candidate.stale_because == (f"the approval {done.approval_id} was revoked",)
        assert candidate.status == "lab_ready"
        await change_fact(lab, "disabled")
        failure = await lab.store.write(lambda tx: probe_gate.still_allowed(tx, waiting.id))
        assert failure is not None
