"""Evidence in: every way in which it can come, and every way in which it must not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.errors import ErrorCode
from bus.streams import EVIDENCE_ACK_WAIT_S
from controller import intake
from controller.evidence import ScanParts, apply
from controller.store.tx import Tx
from observability.counters import Outcome
from tests.support.controllers import Bench, controller_bench
from tests.support.fake_agent import LIFE, Delivery, FakeAgent, passing_evidence
from tests.support.waiting import until

WHOLE_LIFE = ["queued", "preparing", *LIFE, "completed"]


async def probe_under_way(bench: Bench, agent: FakeAgent) -> tuple[str, Delivery, dict[str, Any]]:
    """A queued probe, claimed by the agent."""
    await agent.hello()
    probe_id = await bench.queue(await bench.assessed(agent))
    delivery = await agent.pull()
    lease = await agent.claim(delivery)
    assert lease["kind"] == "claim.granted.v1", lease
    return probe_id, delivery, lease


async def ends(bench: Bench, probe_id: str, state: str, limit_s: float = 10.0) -> dict[str, Any]:
    async def there() -> dict[str, Any] | None:
        view = await bench.probe(probe_id)
        return view if view["state"] == state else None

    view: dict[str, Any] = await until(there, f"{probe_id} is {state}", limit_s)
    return view


async def evidence_is_read(bench: Bench) -> None:
    async def empty() -> bool:
        info = await bench.client.js("STREAM.INFO.MF_EVIDENCE")
        return bool(info["state"]["messages"] == 0)

    await until(empty, "all evidence is acknowledged")


@pytest.mark.req("P1", "P3", "G1", "G2", "G6", "B1")
async def test_a_probe_goes_through_its_life_to_a_candidate(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        probe_id, delivery, lease = await probe_under_way(bench, agent)
        assert (delivery.job["kind"], delivery.job["location"]) == ("probe.job.v1", "model")
        for sequence in range(1, 5):
            await agent.publish(agent.phase(probe_id, lease, sequence, *LIFE[:sequence]))
            assert (await ends(bench, probe_id, LIFE[sequence - 1]))["candidate_id"] is None
        await agent.publish(agent.finished(probe_id, lease, 5))
        view = await ends(bench, probe_id, "completed")
        assert await bench.audits(probe_id) == WHOLE_LIFE
        assert [mark["state"] for mark in view["timeline"]] == WHOLE_LIFE
        assert view["evidence"]["output"]["vector_length"] == 8
        candidate = await bench.call("candidates.show", id=view["candidate_id"])
        assert (candidate["status"], candidate["production"], candidate["probe_id"]) == ("lab_ready", False, probe_id)
        log = await bench.call("probes.log", id=probe_id)
        assert (log["ref"], log["text"]) == (f"runtime-worker://local/{probe_id}/attempt/1", "loaded\n")
        await bench.in_stream()


@pytest.mark.req("P3", "G6")
async def test_lost_and_late_phases_cost_nothing(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        probe_id, _, lease = await probe_under_way(bench, agent)
        await agent.publish(agent.phase(probe_id, lease, 2, *LIFE[:2]))  # the first was lost
        await agent.publish(agent.phase(probe_id, lease, 1, *LIFE[:1]))  # it comes late
        await agent.publish(agent.phase(probe_id, lease, 2, *LIFE[:2]))  # and again
        last = agent.finished(probe_id, lease, 5)
        await agent.publish(last)
        await agent.publish(last)
        await ends(bench, probe_id, "completed")
        await evidence_is_read(bench)
        assert await bench.audits(probe_id) == WHOLE_LIFE, "nothing is missing, twice or out of order"
        assert len((await bench.call("candidates.list"))["candidates"]) == 1


@pytest.mark.req("P4", "B2", "G5")
async def test_what_a_stranger_says_is_audited_and_never_applied(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, nodes=("local", "other")) as bench:
        agent, foreign = await bench.agent(), await bench.agent("other")
        probe_id, _, lease = await probe_under_way(bench, agent)
        await foreign.hello()
        true = agent.finished(probe_id, lease, 5)
        for lie, publisher in [
            (true, foreign),
            ({**true, "node": "other"}, foreign),
            ({**true, "attempt": 2}, agent),
            ({**true, "boot_id": "another"}, agent),
            ({**true, "lease_id": "lse-0000000000"}, agent),
            ({**true, "timeline": true["timeline"][:2]}, agent),
            ({**true, "kind": "scan.finished.v1", "outcome": "succeeded"}, agent),
        ]:
            await publisher.publish(lie)
        await evidence_is_read(bench)
        assert (await bench.probe(probe_id))["state"] == "preparing"
        assert (await bench.audits(probe_id)).count("refused") == 7
        assert (await bench.call("candidates.list"))["candidates"] == []
        await agent.publish(true)
        await ends(bench, probe_id, "completed")


@pytest.mark.req("P4")
async def test_a_late_word_of_a_dead_attempt_is_refused(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, lease_ttl_s=1.0) as bench:
        agent = await bench.agent()
        probe_id, _, first = await probe_under_way(bench, agent)
        await agent.publish(agent.phase(probe_id, first, 1, "loading"))
        again = await agent.pull()
        # The server may offer the message again a moment before the ledger ends the lease.
        await until(lambda: _lease_ended(bench, probe_id), "the sweep ends the first lease")
        second = await agent.claim(again)
        assert second["attempt"] == 2, "the re-claim goes back to preparing"
        await agent.publish(agent.finished(probe_id, first, 5))
        await evidence_is_read(bench)
        view = await bench.probe(probe_id)
        assert (view["state"], view["attempt"]) == ("preparing", 2)
        await agent.publish(agent.finished(probe_id, second, 5))
        await ends(bench, probe_id, "completed")


@pytest.mark.parametrize(
    "poison",
    [b"", b"{", b"\xff\xfe", b'{"kind":"probe.finished.v9"}', b'{"kind":"probe.phase.v1"}', b"[" * 50_000],
    ids=["empty", "cut", "bytes", "kind", "fields", "deep"],
)
async def test_a_poisoned_message_is_audited_and_the_next_one_is_read(tmp_path: Path, poison: bytes) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        await bench.scan()
        await agent.publish(poison)
        await agent.finish_scan(await agent.pull())
        await evidence_is_read(bench)
        assert [row["what"] for row in await bench.rows("audit.list_of", id="local", limit=10)].count("unreadable") == 1


BLIND = {
    "layers": [{"name": "audit_guard", "active": False}, {"name": "scrubbed_environment", "active": False}],
    "egress_barrier": "none", "containment": "none", "start_method": "fresh",
}  # fmt: skip


@pytest.mark.req("P2", "P8", "P11", "P13", "G5")
@pytest.mark.parametrize(
    ("part", "said", "path", "code"),
    [
        ("reclaim", None, LIFE, "HEALTHCHECK_FAILED"),
        ("isolation", BLIND, LIFE, "HEALTHCHECK_FAILED"),
        ("isolation", {"refused_attempts": ["socket.connect (inet)"]}, LIFE, "OFFLINE_LOAD_VIOLATION"),
        ("output", {"input_sha256": "b" * 64}, LIFE, "INVALID_OUTPUT"),
        ("output", {"norm": 0.0, "repeat_identical": False}, LIFE, "INVALID_OUTPUT"),
        ("health", {}, ("unloading",), "HEALTHCHECK_FAILED"),
    ],
    ids=["reclaim", "layers", "attempt", "input", "zero", "never-ready"],
)
async def test_a_pass_without_its_proof_makes_no_candidate(
    tmp_path: Path, part: str, said: dict[str, Any] | None, path: tuple[str, ...], code: str
) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        probe_id, _, lease = await probe_under_way(bench, agent)
        whole = passing_evidence()
        evidence = {**whole, part: None if said is None else {**whole[part], **said}}
        message = agent.finished(probe_id, lease, 5, evidence=evidence)
        message["timeline"] = [mark for mark in message["timeline"] if mark["state"] in path]
        await agent.publish(message)
        view = await ends(bench, probe_id, "failed")
        assert view["failure"]["code"] == code
        assert view["candidate_id"] is None
        assert (await bench.call("candidates.list"))["candidates"] == []


@pytest.mark.req("P9")
async def test_a_failure_of_the_node_is_stored_with_its_code(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        probe_id, _, lease = await probe_under_way(bench, agent)
        failure = {
            "code": "MODEL_LOAD_FAILED",
            "message": "no \x1b[2Jtensors",
            "context": {"file": "model.safetensors"},
        }
        message = agent.finished(probe_id, lease, 3, "failed", failure=failure)
        marks = message["timeline"]
        message["timeline"] = [marks[0], marks[3]]  # loading, then unloading: failed early, still unloaded
        await agent.publish(message)
        view = await ends(bench, probe_id, "failed")
        assert view["failure"] == {**failure, "message": "no tensors"}
        assert (await bench.call("candidates.list"))["candidates"] == []


@pytest.mark.req("P10", "G5")
async def test_a_cancel_reaches_the_node_twice_and_ends_the_probe(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        commands = await agent.client.raw.subscribe("mf.cmd.local")
        await agent.client.raw.flush()
        probe_id, _, lease = await probe_under_way(bench, agent)
        await bench.call("probes.cancel", id=probe_id, reason="no longer wanted")
        hint = await commands.next_msg(timeout=5)
        assert hint.data == b'{"kind":"command.cancel.v1","job_id":"%s"}' % probe_id.encode()
        assert (await agent.renew(lease))["cancel_requested"] is True
        await agent.publish(agent.finished(probe_id, lease, 5, "cancelled"))
        view = await ends(bench, probe_id, "cancelled")
        assert view["failure"]["code"] == ErrorCode.CANCELLED
        assert (await bench.call("candidates.list"))["candidates"] == []
        await bench.in_stream()


@pytest.mark.req("P10")
async def test_a_queued_probe_is_cancelled_at_once_and_its_message_leaves(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        probe_id = await bench.queue(await bench.assessed(agent))
        await bench.in_stream(probe_id)
        assert (await bench.call("probes.cancel", id=probe_id, reason=""))["state"] == "cancelled"
        await bench.in_stream()


@pytest.mark.req("G4", "A19")
async def test_a_revoked_approval_stops_a_probe_at_its_claim(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        probe_id = await bench.queue(await bench.assessed(agent))
        [approval] = (await bench.call("approvals.list"))["approvals"]
        await bench.call("approvals.revoke", id=approval["id"], reason="changed my mind")
        answer = await agent.claim(await agent.pull())
        assert answer == {"kind": "claim.terminal.v1", "state": "failed"}
        view = await ends(bench, probe_id, "failed")
        assert view["failure"]["code"] == ErrorCode.NOT_APPROVED
        await bench.in_stream()


async def test_evidence_in_the_hands_of_a_killed_controller_comes_again_at_once(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        probe_id, _, lease = await probe_under_way(bench, agent)
        await bench.stop()
        await agent.publish(agent.finished(probe_id, lease, 5))
        # A reader that takes the message and is never heard of again.
        await bench.client.raw.request(
            "$JS.API.CONSUMER.MSG.NEXT.MF_EVIDENCE.controller", b'{"batch":1}', timeout=5, old_style=True
        )
        await bench.start()
        # Long before the consumer would offer it again by itself.
        await ends(bench, probe_id, "completed", limit_s=EVIDENCE_ACK_WAIT_S / 2)


async def test_evidence_that_no_try_can_handle_is_ended_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        monkeypatch.setattr(intake, "GIVE_BACK_S", 0.001)

        def broken(tx: Tx, message: Any, node: str, parts: ScanParts | None) -> Outcome:
            if message.job_id == "scn-0000000000":
                raise ValueError("a defect")
            return apply(tx, message, node, parts)

        monkeypatch.setattr(intake, "apply", broken)
        scan_id = await bench.scan()
        delivery = await agent.pull()
        lease = await agent.claim(delivery)
        await agent.publish(agent.phase("scn-0000000000", lease, 1, "loading"))
        await agent.finish_scan(delivery, lease)
        await evidence_is_read(bench)
        assert (await bench.call("scans.show", id=scan_id))["state"] == "succeeded"
        assert "unreadable" in await bench.audits("local")


async def _lease_ended(bench: Bench, job_id: str) -> bool:
    return bool((await bench.row("leases.newest", job_id=job_id))["state"] == "expired")
