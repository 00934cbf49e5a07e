"""Scans by a real agent over a real nats-server: progress, large reports, cancellation, and digests that are known."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bus.codec import decode
from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import now
from bus.messages.artifacts import Manifest, SetEvidence
from bus.messages.blobs import MAX_INLINE_BYTES, NodeBlobPut
from bus.messages.evidence import ScanFinished
from bus.messages.jobs import CancelCommand, ScanJob
from node_agent import scan_progress
from node_agent.hash_cache import FILE_NAME, HashCache, read
from tests.support.agent_jobs import scan_job
from tests.support.agents import AgentBench, agent_bench, silence
from tests.support.scans import LATER, hasher_that, reader_that, scan_processes
from tests.support.waiting import until

WAITING = reader_that("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[AgentBench]:
    async with agent_bench(tmp_path) as bench:
        model = bench.root / "model"
        model.mkdir()
        (model / "config.json").write_text('{"model_type": "bert"}')
        (model / "evil.bin").write_bytes(os.urandom(1000))
        yield bench


async def scanned(bench: AgentBench, job: ScanJob) -> ScanFinished:
    await bench.controller.put(job)
    message = await bench.controller.finished(job.job_id)
    assert isinstance(message, ScanFinished)
    return message


def many_files(bench: AgentBench, count: int = 2_500) -> None:
    for number in range(count):
        (bench.root / "model" / f"a member of a large set, number {number:06}").touch()


@pytest.mark.req("A3", "G4")
async def test_a_set_of_thousands_of_files_goes_ahead_as_a_blob(bench: AgentBench) -> None:
    many_files(bench)
    await bench.agent()
    message = await scanned(bench, scan_job(max_files=10_000))
    assert (message.outcome, message.failure, message.manifest_json) == ("succeeded", None, None)
    assert message.manifest_blob is not None
    data = bench.controller.blobs[message.manifest_blob.sha256]
    assert len(data) == message.manifest_blob.size_bytes > MAX_INLINE_BYTES
    manifest = decode(data, Manifest)
    assert len(manifest.files) == message.files_hashed == 2_502
    assert manifest.digest() == "sha256:" + sha256_hex(data) == "sha256:" + message.manifest_blob.sha256
    evidence = (
        bench.controller.blobs[message.evidence_blob.sha256]
        if message.evidence_blob is not None
        else (message.evidence_json or "").encode()
    )
    assert decode(evidence, SetEvidence).documents == {"config.json": {"model_type": "bert"}}


async def test_an_upload_goes_on_where_it_was_when_an_answer_is_lost(bench: AgentBench) -> None:
    many_files(bench)
    sent: list[NodeBlobPut] = []

    async def losing(request: NodeBlobPut) -> Any:
        sent.append(request)
        state = await bench.controller.on_blob_put(request)
        if len(sent) == 2:
            raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, "it was stored; only the answer is lost")
        return state

    bench.controller.answers["blob.put"] = losing
    await bench.agent()
    message = await scanned(bench, scan_job(max_files=10_000))
    assert message.outcome == "succeeded"
    assert message.manifest_blob is not None
    assert sha256_hex(bench.controller.blobs[message.manifest_blob.sha256]) == message.manifest_blob.sha256
    manifest_bytes = sum(len(one.data) for one in sent if one.blob == message.manifest_blob)
    assert manifest_bytes == message.manifest_blob.size_bytes


async def test_a_controller_that_refuses_the_payload_ends_the_scan_with_its_reason(bench: AgentBench) -> None:
    many_files(bench)

    async def refuse(_request: NodeBlobPut) -> Any:
        raise ModelForgeError(ErrorCode.BLOB_REFUSED, "too many uploads")

    bench.controller.answers["blob.put"] = refuse
    await bench.agent()
    message = await scanned(bench, scan_job(max_files=10_000))
    assert message.failure is not None
    assert (message.outcome, message.failure.code, message.failure.message) == (
        "failed",
        "BLOB_REFUSED",
        "too many uploads",
    )


async def test_more_files_than_the_job_allows_are_refused(bench: AgentBench) -> None:
    many_files(bench, 20)
    await bench.agent()
    message = await scanned(bench, scan_job(max_files=10))
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", "SCAN_TOO_LARGE")


async def test_how_far_a_scan_is_is_told_on_the_way(bench: AgentBench) -> None:
    with (bench.root / "model" / "large.bin").open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    await bench.agent()
    message = await scanned(bench, scan_job())
    assert message.outcome == "succeeded"
    told = [report.progress for report in bench.controller.progress]
    steps = ["listing", "headers", "hashing", "reporting"]
    assert told
    assert [one.step for one in told] == sorted((one.step for one in told), key=steps.index)
    assert {one.bytes_total for one in told if one.step in {"headers", "hashing"}} <= {400 * 1024 * 1024 + 1022}
    assert all(one.files_done <= one.files_total and one.bytes_done <= one.bytes_total for one in told)


async def test_a_controller_that_does_not_hear_progress_delays_nothing(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_progress, "TIMEOUT_S", 3_600.0)
    bench.controller.answers["progress"] = silence
    await bench.agent()
    assert (await scanned(bench, scan_job())).outcome == "succeeded"


@pytest.mark.req("P10")
async def test_a_cancelled_scan_ends_its_process_and_says_so(bench: AgentBench) -> None:
    await bench.agent(scan={"command": WAITING})
    job = scan_job()
    await bench.controller.put(job)
    await until(scan_processes, "the scan's process")
    await bench.controller.command(CancelCommand(job_id=job.job_id))
    message = await bench.controller.finished(job.job_id)
    assert isinstance(message, ScanFinished)
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("cancelled", "CANCELLED")
    assert scan_processes() == []


@pytest.mark.req("P4")
async def test_a_scan_whose_lease_is_over_ends_its_process_and_says_nothing(bench: AgentBench) -> None:
    agent = await bench.agent(scan={"command": WAITING})
    job = scan_job()
    await bench.controller.put(job)
    await until(scan_processes, "the scan's process")
    agent.claims.active[job.job_id].finish(ModelForgeError(ErrorCode.LEASE_FENCED, "the lease is over"))
    await until(lambda: not scan_processes(), "the end of the scan's process")
    await until(lambda: not agent.claims.active, "the end of the job")
    assert bench.controller.evidence == []


async def test_a_scan_that_needs_too_long_ends_with_its_job(bench: AgentBench) -> None:
    await bench.agent(scan={"command": reader_that("exec('while True: pass')"), "file_cpu_s": 1})
    message = await scanned(bench, scan_job())
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", "SCAN_LIMIT_EXCEEDED")
    assert message.failure.context["file"] == "evil.bin"


async def test_two_scans_at_once_have_a_process_each(bench: AgentBench) -> None:
    await bench.agent(scan={"command": WAITING})
    jobs = [scan_job(), scan_job()]
    for job in jobs:
        await bench.controller.put(job)
    await until(lambda: len(scan_processes()) == 2, "two processes")
    for job in jobs:
        await bench.controller.command(CancelCommand(job_id=job.job_id))
    await asyncio.gather(*(bench.controller.finished(job.job_id) for job in jobs))
    assert scan_processes() == []


async def test_a_rescan_hashes_what_changed_and_a_fresh_one_everything(bench: AgentBench, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    await bench.agent(cache=cache, scan={"command": LATER})
    first = await scanned(bench, scan_job())
    assert (first.files_hashed, first.files_cached) == (2, 0)
    again = await scanned(bench, scan_job())
    assert (again.files_hashed, again.files_cached, again.manifest_json) == (0, 2, first.manifest_json)
    (bench.root / "model" / "evil.bin").write_bytes(os.urandom(1000))
    changed = await scanned(bench, scan_job())
    assert (changed.files_hashed, changed.files_cached) == (1, 1)
    # A cache that lies is believed by a scan, and by a fresh one it is not even asked.
    lies = dict.fromkeys(read(cache), "ab" * 32)
    (cache / FILE_NAME).unlink()
    HashCache(cache).remember(lies)
    believed = await scanned(bench, scan_job())
    assert "ab" * 32 in (believed.manifest_json or "")
    fresh = await scanned(bench, scan_job(fresh=True))
    assert (fresh.files_hashed, fresh.files_cached, fresh.manifest_json) == (2, 0, changed.manifest_json)
    # What it computed mends the cache.
    assert (await scanned(bench, scan_job())).manifest_json == changed.manifest_json


HANGS = "os.path.exists('mended') or (open('reached', 'w').close(), time.sleep(1000))"


@pytest.mark.parametrize("end", ["lease", "deadline"])
async def test_a_scan_goes_on_where_the_one_before_ended(bench: AgentBench, tmp_path: Path, end: str) -> None:
    (bench.root / "model" / "large.bin").write_bytes(os.urandom(3 * 1024 * 1024))
    (bench.root / "model" / "stuck.bin").write_bytes(os.urandom(2 * 1024 * 1024))
    agent = await bench.agent(
        cache=tmp_path / "cache", scan={"threads": 1, "scratch": tmp_path, "command": hasher_that(HANGS)}
    )
    job = scan_job(deadline_at=now() + timedelta(seconds=8 if end == "deadline" else 300))
    await bench.controller.put(job)
    await until((tmp_path / "reached").exists, "the file that hangs")
    if end == "lease":
        agent.claims.active[job.job_id].finish(ModelForgeError(ErrorCode.LEASE_FENCED, "the lease is over"))
    else:
        failed = await bench.controller.finished(job.job_id)
        assert failed.failure is not None
        assert (failed.failure.code, failed.failure.context["file"]) == ("SCAN_LIMIT_EXCEEDED", "stuck.bin")
    await until(lambda: not agent.claims.active, "the end of the job")
    (tmp_path / "mended").touch()
    message = await scanned(bench, scan_job())
    assert (message.outcome, message.files_hashed, message.files_cached) == ("succeeded", 1, 3)
