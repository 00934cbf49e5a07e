"""What an assessment records is what was so: each part against the source of that fact (spec A1, A5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.inspect.registry import inspect
from adapters.inspect.subject import NodeFacts, Subject
from bus import ids
from bus.codec import decode, encode
from bus.digest import digest_of, sha256_hex
from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.gates import Assessment
from bus.messages.inventory import NodeInventory
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import RuntimeProfile
from bus.states import Cause, JobEvent
from controller import jobs
from controller.gates import artifact_sets
from controller.store import sets
from controller.store.tx import Tx
from tests.support.gates import counts, refused
from tests.support.ledger import (
    NODE,
    PATH,
    Lab,
    card,
    environment,
    hardware,
    inventory,
    model_files,
    open_lab,
    safetensors_bytes,
    scanned,
    with_adapter,
)

OTHER_NODE = "distant"
WEIGHTY = {"blocker": {"SEQUENCE_TOO_LONG"}, "warning": {"FORMAT_MISMATCH"}}
GPU_PROFILE: dict[str, Any] = {"name": "of-the-test", "device": "cuda", "dtype": "float16", "batch_size": 3}


def word(**changes: Any) -> NodeInventory:
    """A node with a card, whose adapter has a version that no default has."""
    said = inventory(
        environment=environment(python="3.11.99", image="registry/image@sha256:" + "c" * 64),
        hardware=hardware(gpus=(card(),), driver_version="580.65.06", cuda_version="13.0", gpu_reason=None),
        **changes,
    )
    return with_adapter(said, version="6.9.3")


async def scan_on(lab: Lab, node: str, path: str, files: Mapping[str, bytes] | None = None) -> str:
    """A scan of any node's folder ends with these files; the set's digest."""
    view = await lab.call("artifacts.scan", api.ScanRequest(node=node, path=path, request_id=ids.new_id("req")))
    manifest, evidence = scanned(model_files() if files is None else files)

    def finish(tx: Tx) -> str:
        job = jobs.find(tx, view.id)
        assert job is not None
        job = jobs.start_attempt(tx, job, 1)
        digest = artifact_sets.record_scan(tx, view.id, node, manifest, evidence)
        jobs.end_job(tx, job, JobEvent.SUCCEED, Cause.NODE, None)
        return digest

    return await lab.store.write(finish)


async def assess_on(lab: Lab, digest: str, node: str, profile: str = "cpu") -> Assessment:
    request = api.AssessRequest(set_digest=digest, profile=profile, node=node)
    found: Assessment = await lab.call("assessments.create", request)
    return found


async def shown(lab: Lab, assessment: Assessment) -> Assessment:
    found: Assessment = await lab.call("assessments.show", api.ById(id=assessment.id))
    return found


async def stored(lab: Lab, assessment: Assessment) -> tuple[dict[str, Any], Assessment]:
    """The row, and the record in it."""
    [row] = await lab.rows(f"SELECT * FROM assessments WHERE id = '{assessment.id}'")  # noqa: S608 -- the test's own id
    return row, decode(row["body"].encode(), Assessment)


async def three_readings(lab: Lab, assessment: Assessment) -> dict[str, Assessment]:
    """The answer to the request, the row, and what is shown later: each has to say the same."""
    return {"answer": assessment, "row": (await stored(lab, assessment))[1], "show": await shown(lab, assessment)}


def seen_by_hand(said: NodeInventory, profile: RuntimeProfile, files: Mapping[str, bytes]) -> Subject:
    """What is to be inspected, made of what the test said itself and of nothing that the ledger holds."""
    manifest, evidence = scanned(files)
    node = NodeFacts(name=NODE, enabled=True, lab_eligible=True, liveness="online", capabilities=("runtime.probe.v1",))
    return Subject(
        manifest=manifest,
        evidence=evidence,
        profile=profile,
        environment=said.environment,
        hardware=said.hardware,
        node=node,
        location=PATH,
        approved=frozenset({"pickle"}),
    )


@pytest.mark.req("A1", "A2")
async def test_an_assessment_records_each_part_as_it_was(tmp_path: Path) -> None:
    said = word()
    wanted = RuntimeProfile(**GPU_PROFILE, max_sequence_length=4_096)
    files = model_files(**{"extra/notes.txt": b"words", "pytorch_model.bin": safetensors_bytes()})
    async with open_lab(tmp_path) as lab:
        await lab.hello(said)
        digest = await lab.scan(files)
        await lab.profile(**GPU_PROFILE)
        request = api.ProfileRequest(profile=wanted, new_version=True)
        assert (await lab.call("profiles.create", request)).version == 2
        first, second = await lab.approve(digest), await lab.approve(digest, "pickle")
        assessment = await lab.assess(digest, "of-the-test")
        expected = inspect(seen_by_hand(said, wanted, files))
        codes = {severity: {one.code for one in expected.findings if one.severity == severity} for severity in WEIGHTY}
        assert codes == WEIGHTY, "there is something of both to lose"
        manifest, evidence = scanned(files)
        for name, found in (await three_readings(lab, assessment)).items():
            assert found.set_digest == manifest.digest() == digest, name
            assert (found.profile_id, found.profile_name, found.profile_version) == (
                wanted.digest(), "of-the-test", 2,
            ), name  # fmt: skip
            assert found.location == PATH, name
            assert found.node == NODE, name
            assert found.environment_id == said.environment.digest(), name
            assert (found.adapter, found.adapter_version) == ("sentence_transformers", "6.9.3"), name
            assert found.hardware == said.hardware, name
            assert found.findings == expected.findings, name
            assert (found.verdict, found.declared) == ("blocked", expected.declared), name
            assert set(found.approvals) == {first.id, second.id}, name
            assert (found.created_by, found.created_at) == ("alice", assessment.created_at), name
            assert found.estimate == expected.estimate, name
            assert found.fingerprint == digest_of(found.facts), name
            assert found.facts.items() >= facts_by_hand(said, digest, wanted, evidence).items(), name
        assert assessment.estimate is not None


def facts_by_hand(said: NodeInventory, digest: str, profile: RuntimeProfile, evidence: Any) -> dict[str, str]:
    """Facts of the snapshot in the words of `docs`: of set and place, profile, node, environment, adapter and card."""

    def part(value: Any) -> str:
        return f"{len(value)} (sha256:{sha256_hex(encode(value))})"

    return {
        "set": digest,
        "set location": PATH,
        "set integrity": "verified",
        "quarantine": "none",
        "pickle approval": "approved",
        "scan rules": evidence.scanner,
        "set documents": part(evidence.documents),
        "set weight headers": part(evidence.weights),
        "set notes": part(evidence.notes),
        "set formats": part(evidence.formats),
        "set pickles": part(evidence.pickles),
        "profile": profile.digest(),
        "node": NODE,
        "node enabled": "yes",
        "node lab-eligible": "yes",
        "node probes": "yes",
        "environment": said.environment.digest(),
        "python": "3.11.99",
        "platform": "linux-x86_64",
        "image": "registry/image@sha256:" + "c" * 64,
        **{f"package {name}": version for name, version in said.environment.packages.items()},
        "adapter": "sentence_transformers",
        "adapter version": "6.9.3",
        "adapter executable": "yes",
        "adapter tasks": "embedding",
        "adapter modalities": "text",
        "adapter formats": "safetensors",
        "adapter quantizations": "none",
        "adapter model types": "bert",
        "cpu model": "Test CPU",
        "host memory": "8 GiB",
        "driver": "580.65.06",
        "cuda": "13.0",
        "gpu GPU-1": f"Test card {card().memory_total_bytes} B cc 9.0",
    }


@pytest.mark.req("A1")
async def test_the_row_names_in_its_columns_what_its_record_says(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        row, record = await stored(lab, assessment)
        columns = ("id", "set_digest", "profile_id", "node", "environment_id", "fingerprint", "verdict", "created_by")
        assert {name: row[name] for name in columns} == {name: getattr(record, name) for name in columns}
        assert (row["verdict"], row["created_by"]) == ("compatible", "alice")
        assert row["created_at"] == json.loads(row["body"])["created_at"]


@pytest.mark.req("A1")
async def test_nothing_is_blocked_and_the_record_says_that_too(tmp_path: Path) -> None:
    """The other result: no blocker, no approval, no card."""
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        await lab.profile()
        assessment = await lab.assess(digest)
        for name, found in (await three_readings(lab, assessment)).items():
            assert (found.verdict, found.approvals, found.hardware) == ("compatible", (), hardware()), name
            assert [one.code for one in found.findings] == ["MODULE_FOLDER_ABSENT", "DECLARED_NOT_PROVEN"], name


@pytest.mark.req("A1")
async def test_the_record_keeps_the_approvals_of_its_moment_and_show_gives_those_of_now(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        await lab.profile()
        before = await lab.approve(digest, "production")
        assessment = await lab.assess(digest)
        await lab.call("approvals.revoke", api.RevokeRequest(id=before.id, reason="no"))
        after = await lab.approve(digest)
        assert (await stored(lab, assessment))[1].approvals == (before.id,)
        assert (await shown(lab, assessment)).approvals == (after.id,)


@pytest.mark.req("A1")
async def test_the_trail_says_of_an_assessment_what_it_is_of(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.ready()
        await lab.profile(name="gpu", device="cuda")
        digest = (await lab.call("artifacts.list", api.Page())).sets[0].digest
        blocked = await lab.assess(digest, "gpu")
        [entry] = (await lab.call("audit.list", api.AuditRequest(id=blocked.id))).entries
        assert (entry.what, entry.actor) == ("created", "user:alice")
        assert (
            entry.detail.items()
            >= {
                "set": digest,
                "profile": blocked.profile_id,
                "node": NODE,
                "fingerprint": blocked.fingerprint,
                "verdict": "blocked",
                "blockers": "NO_GPU",
            }.items()
        )


async def two_nodes(lab: Lab) -> None:
    await lab.hello()
    await lab.hello(inventory(node=OTHER_NODE, boot_id="boot2"))
    await lab.profile()


@pytest.mark.req("A1", "A5")
async def test_a_set_on_another_node_is_not_on_this_one(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await two_nodes(lab)
        digest = await scan_on(lab, OTHER_NODE, "there/tiny")
        here, there = await assess_on(lab, digest, NODE), await assess_on(lab, digest, OTHER_NODE)
        assert (here.verdict, [one.code for one in here.findings if one.severity == "blocker"]) == (
            "blocked", ["SET_NOT_ON_NODE"],
        )  # fmt: skip
        assert (here.facts["set location"], here.facts["set integrity"]) == ("none", "none")
        assert (there.verdict, there.facts["set location"], there.facts["set integrity"]) == (
            "compatible", "there/tiny", "verified",
        )  # fmt: skip


@pytest.mark.req("A1", "A5", "P5")
@pytest.mark.parametrize(("mine", "theirs"), [("a/tiny", "z/tiny"), ("z/tiny", "a/tiny")])
async def test_each_node_has_its_own_place(tmp_path: Path, mine: str, theirs: str) -> None:
    """Whichever path comes first by name, and whichever was scanned first."""
    async with open_lab(tmp_path) as lab:
        await two_nodes(lab)
        digest = await scan_on(lab, NODE, mine)
        assert await scan_on(lab, OTHER_NODE, theirs) == digest
        await lab.approve(digest)
        for node, path in ((NODE, mine), (OTHER_NODE, theirs)):
            assessment = await assess_on(lab, digest, node)
            for name, found in (await three_readings(lab, assessment)).items():
                assert (found.node, found.location) == (node, path), name
                assert (found.facts["node"], found.facts["set location"]) == (node, path), name
                assert found.stale_because == (), name
            probe = await lab.queue(assessment.id)
            [row] = await lab.rows(f"SELECT payload FROM jobs WHERE id = '{probe.id}'")  # noqa: S608 -- the test's own id
            job = decode(row["payload"].encode(), ProbeJob)
            assert (job.node, job.location, probe.location) == (node, path, path)


@pytest.mark.req("A1", "A5", "P5")
async def test_the_place_that_was_asked_for_is_the_one_on_record_and_the_one_of_the_probe(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await two_nodes(lab)
        digest = await scan_on(lab, NODE, "a/tiny")
        await scan_on(lab, NODE, "b/tiny")
        await scan_on(lab, OTHER_NODE, "c/tiny")
        await lab.approve(digest)
        for path in ("a/tiny", "b/tiny"):
            request = api.AssessRequest(set_digest=digest, profile="cpu", node=NODE, location=path)
            assessment = await lab.call("assessments.create", request)
            for name, found in (await three_readings(lab, assessment)).items():
                assert (found.location, found.facts["set location"], found.stale_because) == (path, path, ()), name
            assert (await lab.queue(assessment.id)).location == path
        before = await counts(lab)
        elsewhere = api.AssessRequest(set_digest=digest, profile="cpu", node=NODE, location="c/tiny")
        error = await refused(lab.call("assessments.create", elsewhere), ErrorCode.PATH_NOT_FOUND)
        assert "a/tiny, b/tiny" in error.message
        assert "c/tiny" in error.message
        assert await counts(lab) == before


@pytest.mark.req("A3", "A5", "A18")
async def test_a_place_that_is_corrupt_on_one_node_takes_nothing_from_the_other(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await two_nodes(lab)
        digest = await scan_on(lab, NODE, "tiny")
        await scan_on(lab, OTHER_NODE, "tiny")
        before = {node: await assess_on(lab, digest, node) for node in (NODE, OTHER_NODE)}
        found = {"file": "config.json", "problem": "other bytes", "found_by": "prb-0000000000"}
        await lab.store.write(lambda tx: sets.corrupt(tx, OTHER_NODE, "tiny", **found))
        assert (await shown(lab, before[NODE])).stale_because == ()
        assert (await shown(lab, before[OTHER_NODE])).stale_because == (
            "set integrity changed from verified to corrupt: config.json: other bytes",
        )
        here, there = await assess_on(lab, digest, NODE), await assess_on(lab, digest, OTHER_NODE)
        assert (here.verdict, here.facts["set integrity"]) == ("compatible", "verified")
        assert there.facts["set integrity"] == "corrupt: config.json: other bytes"
        [blocker] = [one for one in there.findings if one.severity == "blocker"]
        assert blocker.code == "SET_CORRUPT"
        assert OTHER_NODE in blocker.message
        assert "config.json: other bytes" in blocker.message


@pytest.mark.req("A5")
async def test_a_set_that_left_one_node_stays_on_the_other(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await two_nodes(lab)
        digest = await scan_on(lab, NODE, "tiny")
        await scan_on(lab, OTHER_NODE, "tiny")
        before = await assess_on(lab, digest, OTHER_NODE)
        await scan_on(lab, NODE, "tiny", {"README.md": b"another set"})
        places = (await lab.call("artifacts.show", api.ById(id=digest))).locations
        assert [(place.node, place.path) for place in places] == [(OTHER_NODE, "tiny")]
        assert (await shown(lab, before)).stale_because == ()
        here = await assess_on(lab, digest, NODE)
        assert [one.code for one in here.findings if one.severity == "blocker"] == ["SET_NOT_ON_NODE"]


@pytest.mark.req("A1", "A5")
async def test_the_card_and_the_environment_are_those_of_the_node_that_is_assessed(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        said = word(node=OTHER_NODE, boot_id="boot2")
        await lab.hello(said)
        await lab.profile()
        digest = await scan_on(lab, NODE, "tiny")
        await scan_on(lab, OTHER_NODE, "tiny")
        here, there = await assess_on(lab, digest, NODE), await assess_on(lab, digest, OTHER_NODE)
        assert (here.hardware, here.adapter_version) == (hardware(), "6.2.0")
        assert (there.hardware, there.adapter_version) == (said.hardware, "6.9.3")
        assert here.environment_id == inventory().environment.digest()
        assert there.environment_id == said.environment.digest()
        assert here.fingerprint != there.fingerprint


@pytest.mark.req("A1")
async def test_a_list_says_of_each_what_weighs_and_leaves_the_snapshots_to_show(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        ready = await lab.ready()
        await lab.profile(name="gpu", device="cuda", dtype="float16")
        blocked = await lab.assess(ready.set_digest, "gpu")
        listed = (await lab.call("assessments.list", api.AssessmentsRequest())).assessments
        assert [(one.id, one.verdict) for one in listed] == [(blocked.id, "blocked"), (ready.id, "compatible")]
        for short, whole in zip(listed, (blocked, ready), strict=True):
            assert short.findings == tuple(one for one in whole.findings if one.severity != "note")
            assert (short.facts, short.hardware, short.declared) == ({}, None, None)
            assert (short.fingerprint, short.adapter_version) == (whole.fingerprint, "6.2.0")
        assert [one.code for one in listed[0].findings] == ["NO_GPU"]
        assert any(one.severity == "note" for one in ready.findings), "there is something to leave out"
