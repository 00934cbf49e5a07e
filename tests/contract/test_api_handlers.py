"""The operators' verbs: every one has a handler, every reply is what its row of the table says, ids may be typed short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.codec import decode, encode
from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.messages.artifacts import BlobRef
from bus.messages.blobs import BlobPut
from bus.states import ProbeEvent
from bus.verbs import USER_VERBS
from controller.api import USER_HANDLERS
from controller.api_base import MAX_LIST_BYTES, Part, bounded
from tests.support.gates import refused
from tests.support.ledger import NODE, WHOLE_RUN, open_lab, safetensors_bytes


def test_every_verb_has_a_handler_and_no_handler_is_left_over() -> None:
    assert set(USER_HANDLERS) == {verb.name for verb in USER_VERBS}


@pytest.mark.req("B1", "G1")
async def test_every_reply_has_the_type_that_the_table_promises(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        done, leased = await lab.queue(assessment.id), await lab.queue(assessment.id)
        await lab.run(done.id, *WHOLE_RUN)
        await lab.store.write(
            lambda tx: tx.run(
                "evidence.log",
                probe_id=done.id,
                attempt=1,
                ref=f"runtime-worker://{NODE}/{done.id}/attempt/1",
                body="hello",
                dropped_bytes=0,
                at=tx.at,
            )
        )
        scan_id = (await lab.rows("SELECT id FROM scans"))[0]["id"]
        candidate_id = (await lab.rows("SELECT id FROM candidates"))[0]["id"]
        requests: dict[str, Any] = {
            "artifacts.scan": api.ScanRequest(node=NODE, path="x", request_id="one"),
            "scans.show": api.ById(id=scan_id),
            "artifacts.show": api.ById(id=assessment.set_digest),
            "artifacts.files": api.FilesRequest(id=assessment.set_digest),
            "artifacts.quarantine": api.QuarantineRequest(
                set_digest=assessment.set_digest, path="config.json", reason="why"
            ),
            "blobs.put": BlobPut(blob=BlobRef(sha256=sha256_hex(b"x"), size_bytes=1), offset=0, data=b"x"),
            "environments.show": api.ById(id=NODE),
            "profiles.create": api.ProfileRequest(profile=(await lab.profile(name="other")).profile),
            "profiles.show": api.ById(id="cpu"),
            "nodes.show": api.ById(id=NODE),
            "nodes.set": api.NodeFlagsRequest(name=NODE, enabled=True, lab_eligible=True, reason="why"),
            "assessments.create": api.AssessRequest(set_digest=assessment.set_digest, profile="cpu", node=NODE),
            "assessments.show": api.ById(id=assessment.id),
            "approvals.add": api.ApproveRequest(set_digest=assessment.set_digest, purpose="pickle", reason="why"),
            "approvals.revoke": api.RevokeRequest(id=done.approval_id, reason="why"),
            "probes.queue": api.QueueProbeRequest(assessment_id=assessment.id, request_id="two"),
            "probes.show": api.ById(id=done.id),
            "probes.cancel": api.CancelRequest(id=leased.id),
            "probes.log": api.LogRequest(id=done.id),
            "candidates.show": api.ById(id=candidate_id),
            "audit.list": api.AuditRequest(id=done.id),
        }
        last = ("approvals.add", "approvals.revoke", "artifacts.quarantine")
        order = sorted(USER_VERBS, key=lambda verb: (verb.name in last, verb.name))
        for verb in order:
            request = requests.get(verb.name) or verb.request()
            assert decode(encode(request), verb.request) == request
            reply = await lab.call(verb.name, request)
            assert decode(encode(reply), verb.reply) == reply, verb.name
        status = await lab.call("status")
        assert status.event_sequence == (await lab.rows("SELECT max(sequence) AS n FROM audit"))[0]["n"]
        assert status.schema_version == lab.store.schema_version > 0
        assert (status.open_jobs, status.streams) == (2, {"MF_JOBS": "ok"})


async def test_an_id_may_be_typed_short_while_it_is_unambiguous(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        digest = assessment.set_digest
        hexes = digest.removeprefix("sha256:")
        for typed in (digest, hexes, hexes[:6], digest[:14], hexes[:8].upper()):
            assert (await lab.call("artifacts.show", api.ById(id=typed))).digest == digest
        for typed in (assessment.id, assessment.id[:8], assessment.id.removeprefix("asm-")):
            assert (await lab.call("assessments.show", api.ById(id=typed))).id == assessment.id
        profile = await lab.call("profiles.show", api.ById(id="cpu"))
        assert await lab.call("profiles.show", api.ById(id=profile.id[:16])) == profile


@pytest.mark.parametrize(
    ("verb", "typed", "code"),
    [
        ("artifacts.show", "sha256:", ErrorCode.UNKNOWN_ID),
        ("artifacts.show", "abcde", ErrorCode.AMBIGUOUS_ID),
        ("artifacts.show", "abcdef0123", ErrorCode.UNKNOWN_ID),
        ("artifacts.show", "sha256:%' OR 1=1", ErrorCode.UNKNOWN_ID),
        ("artifacts.show", "x" * 10_000, ErrorCode.UNKNOWN_ID),
        ("probes.show", "", ErrorCode.UNKNOWN_ID),
        ("probes.show", "prb-", ErrorCode.UNKNOWN_ID),
        ("probes.show", "prb-zzzzzzzzzz", ErrorCode.UNKNOWN_ID),
        ("probes.log", "prb-zzzzzzzzzz", ErrorCode.UNKNOWN_ID),
        ("profiles.show", "no-such", ErrorCode.UNKNOWN_ID),
        ("nodes.show", "nobody", ErrorCode.NODE_UNKNOWN),
        ("nodes.show", "No Body\x1b", ErrorCode.NODE_UNKNOWN),
        ("candidates.show", "cnd-zzzzzzzzzz", ErrorCode.UNKNOWN_ID),
        ("scans.show", "scn-zzzzzzzzzz", ErrorCode.UNKNOWN_ID),
        ("audit.list", "sha256:ffffff", ErrorCode.UNKNOWN_ID),
    ],
)
async def test_a_wrong_id_is_typed(tmp_path: Path, verb: str, typed: str, code: ErrorCode) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.ready()
        request: Any = api.ById(id=typed)
        if verb == "audit.list":
            request = api.AuditRequest(id=typed)
        elif verb == "probes.log":
            request = api.LogRequest(id=typed)
        with pytest.raises(ModelForgeError) as caught:
            await lab.call(verb, request)
        assert caught.value.code is code
        assert len(caught.value.message) < 400


async def test_a_beginning_that_several_have_is_ambiguous_and_names_them(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probes = [await lab.queue(assessment.id) for _ in range(40)]
        first = min(probe.id for probe in probes)
        twin = next(a for a in probes for b in probes if a.id != b.id and a.id[:5] == b.id[:5])
        with pytest.raises(ModelForgeError) as caught:
            await lab.call("probes.show", api.ById(id=twin.id[:5]))
        assert caught.value.code is ErrorCode.AMBIGUOUS_ID
        assert twin.id[:5] in caught.value.message
        assert (await lab.call("probes.show", api.ById(id=first))).id == first


@pytest.mark.req("G6")
async def test_the_trail_is_read_by_id_digest_or_name(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        digest = assessment.set_digest
        for typed in (digest, digest.removeprefix("sha256:")[:10], digest[:20]):
            trail = await lab.call("audit.list", api.AuditRequest(id=typed))
            assert {entry.id for entry in trail.entries} == {digest}
        trail = await lab.call("audit.list", api.AuditRequest(id=NODE))
        assert [entry.what for entry in trail.entries] == ["admitted"]
        everything = (await lab.call("audit.list", api.AuditRequest())).entries
        sequences = [entry.sequence for entry in everything]
        assert sequences == list(range(len(sequences), 0, -1))


async def test_a_list_fits_one_message(tmp_path: Path) -> None:
    kept = bounded(("x" * 100_000 for _ in range(100)), 100)
    assert 1 < len(kept.items) < 8
    assert kept.truncated
    assert len(encode(kept.items)) <= MAX_LIST_BYTES
    assert bounded((), 1) == Part((), truncated=False)
    assert bounded("ab", 2) == Part(("a", "b"), truncated=False)
    assert bounded("abc", 2) == Part(("a", "b"), truncated=True)
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        for number in range(3):
            await lab.scan({"model.safetensors": safetensors_bytes(number + 1)}, path=f"m{number}")
        some = await lab.call("artifacts.list", api.Page(limit=2))
        assert (len(some.sets), some.truncated) == (2, True)
        assert not (await lab.call("artifacts.list", api.Page(limit=3))).truncated
        trail = await lab.call("audit.list", api.AuditRequest(limit=2))
        assert (len(trail.entries), trail.truncated) == (2, True)
        assert not (await lab.call("audit.list", api.AuditRequest(limit=1_000))).truncated


@pytest.mark.parametrize("verb", ["profiles", "assessments", "approvals", "candidates", "probes", "artifacts"])
async def test_every_list_says_when_there_is_more(tmp_path: Path, verb: str) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        await lab.run((await lab.queue(assessment.id)).id, *WHOLE_RUN)
        assert not (await lab.call(f"{verb}.list", api.Page(limit=1))).truncated
        other = await lab.scan({"model.safetensors": safetensors_bytes(2)}, path="other")
        await lab.approve(other)
        await lab.profile(name="second")
        again = await lab.assess(assessment.set_digest)
        await lab.run((await lab.queue(again.id)).id, *WHOLE_RUN)
        assert (await lab.call(f"{verb}.list", api.Page(limit=1))).truncated


@pytest.mark.req("P12")
async def test_a_log_that_is_still_to_come_is_no_riddle(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        probe = await lab.queue((await lab.ready()).id)

        async def answer(attempt: int | None = None) -> str:
            error = await refused(
                lab.call("probes.log", api.LogRequest(id=probe.id, attempt=attempt)), ErrorCode.UNKNOWN_ID
            )
            return error.message

        assert "waits for its node" in await answer()
        assert "has no attempt 1: it is queued" in await answer(1)
        await lab.run(probe.id, ProbeEvent.CLAIM, ProbeEvent.LOAD)
        for attempt in (None, 1):
            assert "attempt 1 of" in await answer(attempt)
            assert "is loading: its log comes with the end of the attempt" in await answer(attempt)
        assert "has no attempt 2" in await answer(2)
        await lab.run(probe.id, ProbeEvent.CLAIM)
        assert "reported no end of it" in await answer(1)
