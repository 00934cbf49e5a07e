"""What the schema itself refuses, whoever asks: triggers and CHECKs hold the rules when code forgets them."""

from __future__ import annotations

import re
import sqlite3
from enum import StrEnum
from pathlib import Path

import pytest

from bus.states import JobState, LeaseState, ProbeEvent, ProbeState
from controller.store import migrate
from controller.store.tx import Tx
from tests.support.ledger import WHOLE_RUN, Lab, open_lab


async def sql(lab: Lab, text: str, **parameters: object) -> None:
    def change(tx: Tx) -> None:
        tx._connection.execute(text, parameters)

    await lab.store.write(change)


@pytest.mark.req("G2")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE candidates SET production = 1",
        "UPDATE candidates SET status = 'production'",
        "UPDATE candidates SET fingerprint = fingerprint",
        "UPDATE OR REPLACE candidates SET status = 'lab_ready', production = 0",
    ],
)
async def test_a_candidate_cannot_be_changed(tmp_path: Path, change: str) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        before = await lab.rows("SELECT * FROM candidates")
        with pytest.raises(sqlite3.IntegrityError):
            await sql(lab, change)
        assert await lab.rows("SELECT * FROM candidates") == before
        assert [(row["status"], row["production"]) for row in before] == [("lab_ready", 0)]


INSERT = """
INSERT INTO candidates (id, probe_id, set_digest, profile_id, node, environment_id, fingerprint, status, production,
                        created_at)
SELECT 'cnd-x', p.id, p.set_digest, p.profile_id, p.node, a.environment_id, a.fingerprint, :status, :production,
       '2026-01-01T00:00:00.000000Z'
FROM probes p JOIN assessments a ON a.id = p.assessment_id WHERE p.id = :probe
"""


@pytest.mark.req("G2", "G5")
@pytest.mark.parametrize(("status", "production"), [("lab_ready", 1), ("production", 0), ("routed", 0)])
async def test_a_candidate_is_born_lab_ready_or_not_at_all(tmp_path: Path, status: str, production: int) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN[:-1])
        await sql(lab, "UPDATE probes SET state = 'completed' WHERE id = :probe", probe=probe.id)
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            await sql(lab, INSERT, probe=probe.id, status=status, production=production)
        await sql(lab, INSERT, probe=probe.id, status="lab_ready", production=0)
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            await sql(lab, INSERT.replace("cnd-x", "cnd-y"), probe=probe.id, status="lab_ready", production=0)


@pytest.mark.req("G2", "G5")
@pytest.mark.parametrize("state", [state for state in ProbeState if state is not ProbeState.COMPLETED])
async def test_only_a_completed_probe_makes_a_candidate(tmp_path: Path, state: ProbeState) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await sql(lab, "UPDATE probes SET state = :state WHERE id = :probe", state=state, probe=probe.id)
        with pytest.raises(sqlite3.IntegrityError, match="completed probe"):
            await sql(lab, INSERT, probe=probe.id, status="lab_ready", production=0)


@pytest.mark.req("G1")
@pytest.mark.parametrize(
    "broken",
    [
        "UPDATE probes SET approval_id = 'apv-none'",
        "UPDATE probes SET assessment_id = 'asm-none'",
        "DELETE FROM assessments",
        "DELETE FROM approvals",
        "DELETE FROM artifact_sets",
        "DELETE FROM profiles",
    ],
)
async def test_no_gate_can_lose_the_one_before_it(tmp_path: Path, broken: str) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        await lab.queue(assessment.id)
        with pytest.raises(sqlite3.IntegrityError, match=r"FOREIGN KEY|immutable"):
            await sql(lab, broken)


# Each gate's row, copied with one of its references led astray. The triggers that make rows immutable say nothing
# about a new one: here the foreign key stands alone.
REFERENCES = [
    ("set_locations", "node", {"path": "elsewhere"}),
    ("set_locations", "set_digest", {"path": "elsewhere"}),
    ("assessments", "set_digest", {"id": "asm-x"}),
    ("assessments", "profile_id", {"id": "asm-x"}),
    ("assessments", "node", {"id": "asm-x"}),
    ("assessments", "environment_id", {"id": "asm-x"}),
    ("approvals", "set_digest", {"id": "apv-x"}),
    ("jobs", "node", {"id": "prb-x", "request_id": "x"}),
    ("scans", "id", {}),
    ("scans", "set_digest", {"id": "PROBE"}),
    ("probes", "id", {}),
    ("probes", "assessment_id", {"id": "SCAN"}),
    ("probes", "approval_id", {"id": "SCAN"}),
    ("probes", "set_digest", {"id": "SCAN"}),
    ("probes", "profile_id", {"id": "SCAN"}),
    ("probes", "node", {"id": "SCAN"}),
    ("candidates", "set_digest", {"id": "cnd-x", "probe_id": "SECOND"}),
    ("candidates", "profile_id", {"id": "cnd-x", "probe_id": "SECOND"}),
    ("candidates", "node", {"id": "cnd-x", "probe_id": "SECOND"}),
    ("candidates", "environment_id", {"id": "cnd-x", "probe_id": "SECOND"}),
]


@pytest.mark.req("G1")
@pytest.mark.parametrize(("table", "column", "own"), REFERENCES, ids=[f"{row[0]}-{row[1]}" for row in REFERENCES])
async def test_no_gate_can_be_entered_without_the_one_before_it(
    tmp_path: Path, table: str, column: str, own: dict[str, str]
) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe, second = await lab.queue(assessment.id), await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        await lab.run(second.id, *WHOLE_RUN[:-1])
        await sql(lab, "UPDATE probes SET state = 'completed' WHERE id = :id", id=second.id)
        there = {"SCAN": (await lab.rows("SELECT id FROM scans"))[0]["id"], "PROBE": probe.id, "SECOND": second.id}
        row = (await lab.rows(f"SELECT * FROM {table}"))[0]  # noqa: S608 -- the test's own names
        row |= {key: there.get(value, value) for key, value in own.items()}
        missing = "sha256:" + "0" * 64 if str(row[column]).startswith("sha256:") else "none"
        text = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{key}' for key in row)})"  # noqa: S608
        if table == "approvals":
            row["purpose"] = "pickle"
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            await sql(lab, text, **{**row, column: missing})
        if own:
            await sql(lab, text, **row)  # with its reference in order the same row is taken: nothing else refused it


@pytest.mark.req("G1", "G4")
@pytest.mark.parametrize(
    "rewritten",
    [
        "UPDATE artifact_sets SET manifest = '{}'",
        "UPDATE profiles SET body = '{}'",
        "UPDATE environments SET body = '{}'",
        "UPDATE assessments SET verdict = 'compatible'",
        "UPDATE approvals SET set_digest = (SELECT digest FROM artifact_sets WHERE digest != set_digest)",
        "UPDATE approvals SET reason = 'better words'",
        "UPDATE approvals SET approved_by = 'eve'",
        "DELETE FROM approvals",
        "UPDATE probes SET location = 'elsewhere'",
        "DELETE FROM candidates",
    ],
)
async def test_what_a_gate_has_recorded_is_never_rewritten(tmp_path: Path, rewritten: str) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.ready()
        await lab.scan({"x": b"1"}, path="other")
        assessment = (await lab.rows("SELECT id FROM assessments"))[0]["id"]
        probe = await lab.queue(assessment)
        await lab.run(probe.id, *WHOLE_RUN)
        with pytest.raises(sqlite3.IntegrityError, match="immutable"):
            await sql(lab, rewritten)


@pytest.mark.req("G4")
async def test_an_approval_is_revoked_once(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.ready()
        await sql(lab, "UPDATE approvals SET revoked_by = 'a', revoked_at = 'now'")
        for change in ("revoked_by = 'b'", "revoked_by = NULL, revoked_at = NULL"):
            with pytest.raises(sqlite3.IntegrityError, match="immutable"):
                await sql(lab, f"UPDATE approvals SET {change}")  # noqa: S608


@pytest.mark.req("G4")
async def test_there_is_one_valid_approval_for_a_set_and_purpose(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        text = (
            "INSERT INTO approvals (id, set_digest, purpose, approved_by, reason, approved_at) "
            "VALUES ('apv-x', :digest, 'lab_execution', 'eve', :reason, 'now')"
        )
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            await sql(lab, text, digest=assessment.set_digest, reason="mine")
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            await sql(lab, text, digest=assessment.set_digest, reason="")


@pytest.mark.req("P4")
async def test_a_job_is_never_held_twice(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, ProbeEvent.CLAIM)
        text = (
            "INSERT INTO leases (id, job_id, node, boot_id, attempt, token_sha256, state, delivery, claimed_at, "
            "expires_at) VALUES (:id, :job, 'local', 'b', :attempt, :hash, 'active', 'd', 'now', 'later')"
        )
        await sql(lab, text, id="lse-1", job=probe.id, attempt=1, hash="a" * 64)
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            await sql(lab, text, id="lse-2", job=probe.id, attempt=2, hash="b" * 64)


@pytest.mark.parametrize(("table", "states"), [("probes", ProbeState), ("jobs", JobState), ("leases", LeaseState)])
def test_the_checks_of_state_columns_are_the_transition_tables_states(table: str, states: type[StrEnum]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate.migrate(connection, migrate.load_migrations())
        schema = migrate.schema(connection)[f"table {table}"]
    finally:
        connection.close()
    match = re.search(r"CHECK \(state IN \(([^)]*)\)\)", schema)
    assert match is not None
    assert re.findall(r"'(\w+)'", match.group(1)) == [state.value for state in states]
