"""Every gate's command writes exactly its audit lines, in the transaction of what it changes (spec G6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bus.messages import api
from bus.messages.profiles import RuntimeProfile
from bus.states import ProbeEvent
from bus.verbs import USER_VERBS
from controller.gates import candidates
from controller.store.connection import Store
from controller.store.tx import Tx
from tests.support.gates import counts
from tests.support.ledger import NODE, WHOLE_RUN, Lab, model_files, open_lab

Lines = list[tuple[str, str, str]]  # entity, what, actor
Deed = Callable[[Lab], Awaitable[Any]]
ALICE = "user:alice"


@dataclass(frozen=True)
class Case:
    """What an operator does, on a ledger on which `before` was done, and the lines that it must leave."""

    verb: str
    request: Callable[[Lab], Awaitable[Any]]
    lines: Lines
    before: tuple[ProbeEvent, ...] | None = None  # a probe is queued, and went so far


async def digest(lab: Lab) -> str:
    return str((await lab.rows("SELECT digest FROM artifact_sets"))[0]["digest"])


async def identity(lab: Lab, table: str) -> str:
    return str((await lab.rows(f"SELECT id FROM {table}"))[0]["id"])  # noqa: S608 -- the test's own names


async def scan(_lab: Lab) -> Any:
    return api.ScanRequest(node=NODE, path="other", request_id="one")


async def quarantine(lab: Lab) -> Any:
    return api.QuarantineRequest(set_digest=await digest(lab), path="config.json", reason="not ours")


async def profile(_lab: Lab) -> Any:
    return api.ProfileRequest(profile=RuntimeProfile(name="second"))


async def flags(_lab: Lab) -> Any:
    return api.NodeFlagsRequest(name=NODE, enabled=False, reason="maintenance")


async def assess(lab: Lab) -> Any:
    return api.AssessRequest(set_digest=await digest(lab), profile="cpu", node=NODE)


async def approve(lab: Lab) -> Any:
    return api.ApproveRequest(set_digest=await digest(lab), purpose="pickle", reason="read it")


async def revoke(lab: Lab) -> Any:
    return api.RevokeRequest(id=await identity(lab, "approvals"), reason="changed my mind")


async def queue(lab: Lab) -> Any:
    return api.QueueProbeRequest(assessment_id=await identity(lab, "assessments"), request_id="one")


async def cancel(lab: Lab) -> Any:
    return api.CancelRequest(id=await identity(lab, "probes"), reason="no longer wanted")


CASES = (
    Case("artifacts.scan", scan, [("scan", "queued", ALICE)]),
    Case("artifacts.quarantine", quarantine, [("quarantine", "added", ALICE), ("set", "quarantined", ALICE)]),
    Case("profiles.create", profile, [("profile", "created", ALICE)]),
    Case("nodes.set", flags, [("node", "flags", ALICE)]),
    Case("assessments.create", assess, [("assessment", "created", ALICE)]),
    Case("approvals.add", approve, [("approval", "added", ALICE)]),
    Case("approvals.revoke", revoke, [("approval", "revoked", ALICE)]),
    Case("probes.queue", queue, [("probe", "queued", ALICE)]),
    Case("probes.cancel", cancel, [("probe", "cancelled", ALICE)], before=()),
    Case("probes.cancel", cancel, [("probe", "cancel-requested", ALICE)], before=(ProbeEvent.CLAIM,)),
)


def test_every_command_of_an_operator_is_a_case() -> None:
    commands = {verb.name for verb in USER_VERBS if verb.effect == "command"}
    # A chunk of a payload changes no gate: what it is used for is audited.
    assert {case.verb for case in CASES} == commands - {"blobs.put"}


async def last_sequence(lab: Lab) -> int:
    return int((await lab.rows("SELECT max(sequence) AS n FROM audit"))[0]["n"])


async def lines_after(lab: Lab, sequence: int) -> Lines:
    """The audit lines behind `sequence`; each has its event in the outbox."""
    rows = await lab.rows(
        f"SELECT sequence, entity, what, actor FROM audit WHERE sequence > {sequence} ORDER BY sequence"  # noqa: S608
    )
    told = {row["dedupe_id"] for row in await lab.rows("SELECT dedupe_id FROM outbox WHERE topic = 'event'")}
    assert {f"audit-{row['sequence']}" for row in rows} <= told
    return [(row["entity"], row["what"], row["actor"]) for row in rows]


class Lost(Exception):  # noqa: N818 -- not an error of the product: the process dies before its commit
    """What a transaction that is rolled back ends in."""


async def lose(lab: Lab, monkeypatch: pytest.MonkeyPatch, deed: Deed) -> None:
    """Do it in a transaction that is lost at its very end."""
    write = Store.write

    async def lost(store: Store, change: Callable[[Tx], Any]) -> Any:
        def until_the_end(tx: Tx) -> Any:
            change(tx)
            raise Lost

        return await write(store, until_the_end)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", lost)
        with pytest.raises(Lost):
            await deed(lab)


async def whole(lab: Lab) -> dict[str, Any]:
    """All that could be left behind."""
    return {**await counts(lab), "nodes": await lab.rows("SELECT enabled, lab_eligible FROM nodes")}


@pytest.mark.req("G6")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.verb}-{case.lines[0][1]}")
async def test_a_command_writes_exactly_its_line_in_its_own_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        if case.before is not None:
            await lab.run((await lab.queue(assessment.id)).id, *case.before)
        request = await case.request(lab)
        before, sequence = await whole(lab), await last_sequence(lab)
        await lose(lab, monkeypatch, lambda lab: lab.call(case.verb, request))
        assert await whole(lab) == before, "neither the change nor its line outlives a lost commit"
        await lab.call(case.verb, request)
        assert await lines_after(lab, sequence) == case.lines
        if case.verb not in {"assessments.create", "approvals.revoke"} and case.before != ():
            await lab.call(case.verb, request)
            assert await lines_after(lab, sequence) == case.lines, "what changes nothing is no second line"


@pytest.mark.req("G6", "A3")
async def test_a_set_is_recorded_located_and_replaced_on_the_record(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        sequence = await last_sequence(lab)
        await lab.scan(path="one")
        actor = f"node:{NODE}"
        queued, recorded, located = ("scan", "queued", ALICE), ("set", "recorded", actor), ("set", "located", actor)
        assert await lines_after(lab, sequence) == [queued, recorded, located]
        sequence = await last_sequence(lab)
        await lab.scan(path="one")
        assert await lines_after(lab, sequence) == [queued], "the same set at the same place is nothing new"
        await lab.scan(path="two")
        assert await lines_after(lab, sequence) == [queued, queued, located], "a known set at a new place"
        sequence = await last_sequence(lab)
        await lab.scan(model_files(**{"README.md": b"other"}), path="one")
        assert await lines_after(lab, sequence) == [queued, recorded, ("set", "replaced", actor), located]


@pytest.mark.req("G6", "G2")
async def test_a_candidate_is_on_the_record_and_comes_with_its_probe_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN[:-1])
        before, sequence = await whole(lab), await last_sequence(lab)
        await lose(lab, monkeypatch, lambda lab: lab.run(probe.id, WHOLE_RUN[-1]))
        assert await whole(lab) == before
        await lab.run(probe.id, WHOLE_RUN[-1])
        assert await lines_after(lab, sequence) == [("candidate", "lab-ready", "controller")]
        with pytest.raises(Exception, match="UNIQUE"):
            await lab.store.write(lambda tx: candidates.make(tx, probe.id))
        assert await lines_after(lab, sequence) == [("candidate", "lab-ready", "controller")]


@pytest.mark.req("G6")
async def test_a_boot_is_admitted_on_the_record(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        assert await lines_after(lab, 0) == [("node", "admitted", f"node:{NODE}")]
