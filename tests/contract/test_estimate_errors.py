"""An estimate is held against what a probe then measured, kept in the probe's last transaction, and shown (spec A11)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.messages.evidence import MemorySource, MemorySummary, ProbeEvidence
from bus.messages.gates import Assessment, EstimateError
from bus.states import Cause, JobEvent, ProbeEvent
from controller import jobs
from controller.gates import candidates
from controller.store import estimates
from controller.store.tx import Tx
from tests.support.gates import counts
from tests.support.ledger import (
    MIB,
    WHOLE_RUN,
    Lab,
    card,
    hardware,
    inventory,
    model_files,
    open_lab,
    weights_bytes,
)
from tests.support.proven import proven_evidence

CARDED = inventory(hardware=hardware(gpus=(card(),), driver_version="600.1", cuda_version="13.2", gpu_reason=None))


def evidence(source: MemorySource, peak_bytes: int | None) -> ProbeEvidence:
    memory = MemorySummary(source=source, peak_bytes=peak_bytes)
    return msgspec.structs.replace(proven_evidence(), memory=memory)


async def measured(
    lab: Lab, assessment: Assessment, peak_bytes: int | None, source: MemorySource = MemorySource.PROCESS_RSS
) -> str:
    probe = await lab.queue(assessment.id)
    await lab.run(probe.id, *WHOLE_RUN, evidence=evidence(source, peak_bytes))
    return probe.id


async def kept(lab: Lab) -> list[dict[str, Any]]:
    return await lab.rows("SELECT * FROM estimate_errors ORDER BY at")


def size_of(assessment: Assessment) -> int:
    assert assessment.estimate is not None
    return assessment.estimate.size_bytes


def history(assessment: Assessment) -> tuple[EstimateError, ...]:
    assert assessment.estimate is not None
    assert assessment.estimate.kind == "estimated"
    return assessment.estimate.history


@pytest.mark.req("A11")
async def test_the_error_of_an_estimate_is_kept_and_shown_beside_the_next(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        assert history(assessment) == ()
        estimated = size_of(assessment)
        probe_id = await measured(lab, assessment, estimated // 2)
        [row] = await kept(lab)
        assert (row["probe_id"], row["estimated_bytes"], row["measured_bytes"]) == (
            probe_id,
            estimated,
            estimated // 2,
        )
        [shown] = history(await lab.assess(assessment.set_digest))
        assert (shown.probe_id, shown.scope, shown.source) == (
            probe_id,
            "same set, profile and node",
            MemorySource.PROCESS_RSS,
        )
        assert shown.error_percent == 100
        assert (shown.estimated_bytes, shown.measured_bytes) == (estimated, estimated // 2)


@pytest.mark.req("A11")
@pytest.mark.parametrize(
    ("source", "peak_bytes"),
    [
        (MemorySource.ALLOCATOR, 500 * MIB),
        (MemorySource.NVML_PROCESS, 500 * MIB),
        (MemorySource.DEVICE_DELTA, 500 * MIB),
        (MemorySource.UNAVAILABLE, None),
        (MemorySource.PROCESS_RSS, None),
        (MemorySource.PROCESS_RSS, 0),
        (MemorySource.PROCESS_RSS, -1),
    ],
)
async def test_figures_of_another_kind_are_never_compared_and_spoil_no_probe(
    tmp_path: Path, source: MemorySource, peak_bytes: int | None
) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        await measured(lab, assessment, peak_bytes, source)
        assert await kept(lab) == []
        assert (await counts(lab))["candidates"] == 1


@pytest.mark.req("A11")
async def test_a_card_is_compared_with_what_the_card_said(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello(CARDED)
        digest = await lab.scan()
        await lab.profile(device="cuda")
        assessment = await lab.assess(digest)
        assert assessment.verdict == "compatible", assessment.findings
        await lab.approve(digest)
        for source in (MemorySource.PROCESS_RSS, MemorySource.ALLOCATOR):
            await measured(lab, assessment, 600 * MIB, source)
        assert await kept(lab) == []
        for source in (MemorySource.NVML_PROCESS, MemorySource.DEVICE_DELTA):
            await measured(lab, assessment, 600 * MIB, source)
        assert [row["source"] for row in await kept(lab)] == ["nvml_process", "device_delta"]


@pytest.mark.req("A11")
async def test_the_nearest_relative_is_shown_first_and_no_more_than_three(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.ready()
        other = await lab.scan(model_files(**{"model.safetensors": weights_bytes(56)}), path="other")
        await lab.approve(other)
        relative = await measured(lab, await lab.assess(other), 300 * MIB)
        [set_] = [row["digest"] for row in await lab.rows("SELECT digest FROM artifact_sets") if row["digest"] != other]
        first = await lab.assess(set_)
        assert [(one.probe_id, one.scope) for one in history(first)] == [(relative, "same adapter and node")]
        own = [await measured(lab, first, 100 * MIB * number) for number in (1, 2, 3)]
        again = history(await lab.assess(set_))
        assert [one.probe_id for one in again] == own[::-1], "its own, the newest first"
        near = await lab.profile(name="near", batch_size=2)
        assert {one.scope for one in history(await lab.assess(set_, near.id))} == {"same adapter and node"}


def elsewhere(assessment: Assessment, **changes: Any) -> dict[str, Any]:
    """A row as a probe on another node would have left it."""
    values = {
        "probe_id": "prb-elsewhere0",
        "set_digest": assessment.set_digest,
        "profile_id": assessment.profile_id,
        "node": "elsewhere",
        "adapter": assessment.adapter,
        "estimated_bytes": 100,
        "measured_bytes": 200,
        "source": "process_rss",
        "at": "2026-01-01T00:00:00.000000Z",
    }
    return {**values, **changes}


@pytest.mark.req("A11")
async def test_the_order_is_same_node_then_same_profile_then_same_adapter(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        strange = {"set_digest": "sha256:" + "0" * 64, "node": assessment.node}
        rows = (
            elsewhere(assessment),
            elsewhere(assessment, probe_id="prb-relative00", **strange),
            elsewhere(assessment, probe_id="prb-oncuda0000", source="nvml_process", **strange),
            elsewhere(assessment, probe_id="prb-otheradapt", adapter="vllm", **strange),
        )
        probe_id = await measured(lab, assessment, 500 * MIB)

        def forge(tx: Tx) -> None:
            tx._connection.execute("PRAGMA defer_foreign_keys = ON")
            for row in rows:
                tx.run("estimates.insert", **row)
            found = estimates.history(tx, assessment.set_digest, profile, assessment.node)
            assert [(one.probe_id, one.scope) for one in found] == [
                (probe_id, "same set, profile and node"),
                ("prb-elsewhere0", "same set and profile"),
                ("prb-relative00", "same adapter and node"),
            ]
            assert [one.error_percent for one in found[1:]] == [-50, -50]
            raise UndoneError

        profile = await lab.profile()
        with pytest.raises(UndoneError):
            await lab.store.write(forge)


class UndoneError(Exception):
    """Rows that no probe made are not left in the ledger."""


@pytest.mark.req("A11", "G5")
async def test_the_error_is_of_the_transaction_that_completes_the_probe(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN[:-1])
        data = evidence(MemorySource.PROCESS_RSS, 500 * MIB)

        def half(tx: Tx) -> None:
            tx.run("evidence.store", id=probe.id, evidence=msgspec.json.encode(data).decode())
            job = jobs.find(tx, probe.id)
            assert job is not None
            jobs.move_probe(tx, job, ProbeEvent.COMPLETE, Cause.NODE)
            jobs.end_job(tx, job, JobEvent.SUCCEED, Cause.NODE, None)
            candidates.make(tx, probe.id)
            assert tx._connection.execute("SELECT count(*) FROM estimate_errors").fetchone()[0] == 1
            raise UndoneError

        with pytest.raises(UndoneError):
            await lab.store.write(half)
        assert await kept(lab) == []
        await lab.run(probe.id, ProbeEvent.COMPLETE, evidence=data)
        assert len(await kept(lab)) == 1
        with pytest.raises(sqlite3.IntegrityError):
            await lab.store.write(lambda tx: candidates.make(tx, probe.id))
        assert len(await kept(lab)) == 1, "a probe tells once"


@pytest.mark.req("A11")
@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(1, 2**62), st.integers(1, 2**62))
def test_an_error_is_a_small_whole_number_with_the_right_sign(estimated: int, measured_bytes: int) -> None:
    percent = estimates.error_percent(estimated, measured_bytes)
    assert abs(percent) <= estimates.MAX_ERROR_PERCENT
    assert percent >= -100
    assert (percent > 0) <= (estimated > measured_bytes)
    assert (percent < 0) <= (estimated < measured_bytes)
