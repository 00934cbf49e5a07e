"""Approvals, quarantine and the claim: each line of the rules has a test that needs it (spec G1, G4, A5)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.messages.artifacts import Quarantine
from bus.messages.evidence import MemorySource, MemorySummary
from bus.messages.gates import Approval, Purpose
from bus.subjects import Caller
from controller.gates import approvals as approval_gate
from controller.gates import probes as probe_gate
from controller.gates import quarantine as quarantine_gate
from controller.store.tx import Tx
from tests.support.gates import counts, refused
from tests.support.ledger import WHOLE_RUN, Lab, inventory, model_files, open_lab, with_adapter
from tests.support.proven import proven_evidence

EVERY: tuple[Purpose, ...] = ("lab_execution", "pickle", "production")


async def trail(lab: Lab, entity_id: str) -> list[tuple[str, str, dict[str, str]]]:
    entries = (await lab.call("audit.list", api.AuditRequest(id=entity_id))).entries
    return [(entry.what, entry.actor, entry.detail) for entry in reversed(entries)]


async def revoke(lab: Lab, approval: Approval, reason: str, user: str) -> Approval:
    made: Approval = await lab.call("approvals.revoke", api.RevokeRequest(id=approval.id, reason=reason), user=user)
    return made


async def quarantine(lab: Lab, digest: str, path: str) -> Quarantine:
    request = api.QuarantineRequest(set_digest=digest, path=path, reason="not from us")
    made: Quarantine = await lab.call("artifacts.quarantine", request)
    return made


async def approvals(lab: Lab) -> dict[str, Approval]:
    return {one.id: one for one in (await lab.call("approvals.list", api.Page())).approvals}


async def released(lab: Lab, digest: str) -> dict[str, str | None]:
    found = (await lab.call("artifacts.show", api.ById(id=digest))).quarantined
    return {one.path: one.released_by for one in found}


@pytest.mark.req("G4")
@pytest.mark.parametrize("purpose", EVERY)
async def test_giving_and_taking_back_are_both_on_the_trail(tmp_path: Path, purpose: Purpose) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        given = await lab.approve(digest, purpose)
        taken = await revoke(lab, given, "found a flaw", "bob")
        of_it = {"set": digest, "purpose": purpose}
        assert await trail(lab, given.id) == [
            ("added", "user:alice", {**of_it, "reason": "reviewed"}),
            ("revoked", "user:bob", {**of_it, "reason": "found a flaw"}),
        ]
        assert (taken.approved_by, taken.reason, taken.revoked_by, taken.revoke_reason) == (
            "alice", "reviewed", "bob", "found a flaw",
        )  # fmt: skip
        assert taken.revoked_at is not None
        assert await approvals(lab) == {given.id: taken}


@pytest.mark.req("G4")
@pytest.mark.parametrize("reason", ["", "  ", "x" * 1_001])
async def test_taking_back_needs_a_reason_and_a_refusal_changes_nothing(tmp_path: Path, reason: str) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        given = await lab.approve(await lab.scan())
        before = await counts(lab)
        await refused(revoke(lab, given, reason, "bob"), ErrorCode.INVALID_ARGUMENT)
        assert await counts(lab) == before
        assert await approvals(lab) == {given.id: given}


@pytest.mark.req("G4")
async def test_taking_back_twice_keeps_the_first_word(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        given = await lab.approve(await lab.scan())
        taken = await revoke(lab, given, "first", "bob")
        before = await counts(lab)
        error = await refused(revoke(lab, given, "second", "eve"), ErrorCode.ILLEGAL_TRANSITION)
        assert "bob" in error.message
        assert await counts(lab) == before
        assert await approvals(lab) == {given.id: taken}


@pytest.mark.req("G4")
async def test_an_approval_is_for_one_purpose_and_ends_alone(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        given = [await lab.approve(digest, purpose) for purpose in EVERY]
        assert len({one.id for one in given}) == len(EVERY)
        await revoke(lab, given[0], "no", "bob")
        left = [one.id for one in (await approvals(lab)).values() if one.revoked_at is None]
        assert sorted(left) == sorted(one.id for one in given[1:])


@pytest.mark.req("G4", "A4")
async def test_a_release_that_is_older_than_a_quarantine_is_ended_and_given_anew(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        await quarantine(lab, digest, "model.safetensors")
        old = await lab.approve(digest, "quarantine_release")
        await quarantine(lab, digest, "config.json")
        assert await released(lab, digest) == {"model.safetensors": old.id, "config.json": None}
        new = await lab.approve(digest, "quarantine_release")
        assert new.id != old.id, "the older word does not cover what came after it"
        assert await released(lab, digest) == dict.fromkeys(("model.safetensors", "config.json"), new.id)
        found = await approvals(lab)
        assert (found[old.id].revoked_by, found[new.id].revoked_at) == ("alice", None)
        assert (found[old.id].revoke_reason or "").startswith("superseded")
        assert [what for what, _, _ in await trail(lab, old.id)] == ["added", "revoked"]
        assert [what for what, _, _ in await trail(lab, new.id)] == ["added"]


@pytest.mark.req("G4", "A4")
async def test_a_release_that_is_younger_than_every_quarantine_is_given_once(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        await quarantine(lab, digest, "model.safetensors")
        await quarantine(lab, digest, "config.json")
        given = await lab.approve(digest, "quarantine_release")
        before = await counts(lab)
        assert await lab.approve(digest, "quarantine_release") == given
        assert await counts(lab) == before


@pytest.mark.req("G4", "A4")
async def test_a_release_of_the_same_moment_is_none_and_does_not_stand_in_the_way_of_one(tmp_path: Path) -> None:
    """Which of the two came first cannot be told: it counts as the older one, and a later one may be given."""
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        alice = Caller("user", "alice", "a test")
        bad = api.QuarantineRequest(set_digest=digest, path="model.safetensors", reason="not from us")
        good = api.ApproveRequest(set_digest=digest, purpose="quarantine_release", reason="reviewed")

        def both(tx: Tx) -> Approval:
            quarantine_gate.add(tx, alice, bad)
            return approval_gate.add(tx, alice, good)

        doubtful = await lab.store.write(both)
        assert await released(lab, digest) == {"model.safetensors": None}
        later = await lab.approve(digest, "quarantine_release")
        assert later.id != doubtful.id
        assert await released(lab, digest) == {"model.safetensors": later.id}


@pytest.mark.req("G4")
async def test_a_quarantine_ends_no_approval_of_another_purpose(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        given = {purpose: await lab.approve(digest, purpose) for purpose in EVERY}
        await quarantine(lab, digest, "model.safetensors")
        assert {purpose: await lab.approve(digest, purpose) for purpose in EVERY} == given


@pytest.mark.req("G4", "A4")
async def test_what_is_released_may_be_assessed_and_the_finding_names_the_release(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        other = await lab.scan(model_files(NOTICE=b"another set with the same weights"), "other")
        await lab.profile()
        made = await quarantine(lab, digest, "model.safetensors")
        assert made.sha256 == sha256_hex(model_files()["model.safetensors"])
        blocked = await lab.assess(digest)
        assert [one.code for one in blocked.findings if one.severity == "blocker"] == ["MEMBER_QUARANTINED"]
        assert blocked.facts["quarantine"] == "model.safetensors"
        release = await lab.approve(digest, "quarantine_release")
        after = await lab.assess(digest)
        assert after.verdict == "compatible"
        assert [one.source for one in after.findings if one.code == "QUARANTINE_RELEASED"] == [f"approval {release.id}"]
        assert after.facts["quarantine"] == "model.safetensors released"
        assert (await lab.assess(other)).verdict == "blocked", "the release is of the exact set"


@pytest.mark.req("G1")
async def test_a_claim_of_a_probe_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """A node cannot make up a job: it is no probe that was queued behind the gates."""
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        assert await lab.store.write(lambda tx: probe_gate.still_allowed(tx, probe.id)) is None
        for unknown in ("prb-0000000000", assessment.id, ""):
            with pytest.raises(ModelForgeError) as caught:
                await lab.store.write(partial(probe_gate.still_allowed, probe_id=unknown))
            assert caught.value.code is ErrorCode.UNKNOWN_ID


@pytest.mark.req("G1")
async def test_the_trail_says_of_a_candidate_which_gates_it_passed(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        [candidate] = (await lab.call("candidates.list", api.Page())).candidates
        [(what, actor, detail)] = await trail(lab, candidate.id)
        assert (what, actor) == ("lab-ready", "controller")
        assert detail == {
            "probe": probe.id,
            "set": assessment.set_digest,
            "profile": assessment.profile_id,
            "node": assessment.node,
            "fingerprint": assessment.fingerprint,
        }


@pytest.mark.req("A4")
async def test_equal_bytes_under_two_names_are_quarantined_once_under_the_first(tmp_path: Path) -> None:
    evil = b"cos\nsystem\n(S'true'\ntR."
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan(model_files(**{"b/x.pkl": evil, "a/x.pkl": evil}))
        [made] = (await lab.call("artifacts.show", api.ById(id=digest))).quarantined
        assert (made.sha256, made.path, made.quarantined_by) == (sha256_hex(evil), "a/x.pkl", "controller")
        [(what, actor, detail)] = await trail(lab, made.id)
        assert (what, actor) == ("added", "controller")
        assert detail == {"set": digest, "sha256": made.sha256, "path": "a/x.pkl", "reason": made.reason}
        again = await lab.scan(model_files(**{"c/x.pkl": evil}), "other")
        assert (await lab.call("artifacts.show", api.ById(id=again))).quarantined == (made,)
        assert len(await lab.rows("SELECT id FROM quarantines")) == 1


@pytest.mark.req("A11", "A17")
async def test_a_measurement_without_an_estimate_is_no_error_of_one(tmp_path: Path) -> None:
    """Of a custom runner nothing is estimated: its probe completes, and nothing is compared."""
    memory = MemorySummary(source=MemorySource.PROCESS_RSS, peak_bytes=600_000_000)
    async with open_lab(tmp_path) as lab:
        await lab.hello(with_adapter(inventory(), name="custom", version="1.0"))
        digest = await lab.scan()
        await lab.profile(adapter="custom")
        await lab.approve(digest)
        assessment = await lab.assess(digest)
        assert (assessment.verdict, assessment.estimate) == ("requires_probe", None)
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN, evidence=msgspec.structs.replace(proven_evidence(), memory=memory))
        assert (await counts(lab))["candidates"] == 1
        assert await lab.rows("SELECT * FROM estimate_errors") == []
        shown = await lab.call("assessments.show", api.ById(id=assessment.id))
        assert (shown.verdict, shown.estimate) == ("requires_probe", None), "what was measured becomes no estimate"
        assert shown.proof is not None
        assert (shown.proof.kind, shown.proof.memory_bytes) == ("measured", 600_000_000)
