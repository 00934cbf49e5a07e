"""What a node sends and fetches under a lease: nobody else's, no longer than the lease, and nothing but its own job's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.digest import canonical_json, sha256_hex
from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.artifacts import BlobRef, ScanProgress
from bus.messages.blobs import MAX_CHUNK_BYTES, NodeBlobGet, NodeBlobPut, ProgressReport
from bus.subjects import Caller
from controller import jobs
from controller.progress import ProgressBoard
from controller.store import sets
from tests.support.gates import refused
from tests.support.leased_scans import BOOT, LeasedScan, claim, leased, node_blobs, send
from tests.support.ledger import NODE, Lab, model_files, open_lab

DATA = b"a manifest, say"
BLOB = BlobRef(sha256=sha256_hex(DATA), size_bytes=len(DATA))
CALLER = Caller("node", NODE, "blob.put")


def put(scan: LeasedScan, **changes: Any) -> NodeBlobPut:
    fields = {"boot_id": BOOT, "lease_id": scan.lease_id, "token": scan.token, "blob": BLOB, "offset": 0, "data": DATA}
    return NodeBlobPut(**{**fields, **changes})


@pytest.mark.req("P4", "B2")
@pytest.mark.parametrize(
    ("changes", "caller", "code"),
    [
        ({"token": "guessed"}, NODE, ErrorCode.PERMISSION_DENIED),
        ({"lease_id": "lse-0000000000"}, NODE, ErrorCode.PERMISSION_DENIED),
        ({"boot_id": "boot2"}, NODE, ErrorCode.BOOT_SUPERSEDED),
        ({}, "other", ErrorCode.PERMISSION_DENIED),
    ],
)
async def test_whoever_does_not_hold_the_lease_leaves_nothing(
    tmp_path: Path, changes: dict[str, str], caller: str, code: ErrorCode
) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        scan = await leased(lab)
        verbs, who = node_blobs(lab), Caller("node", caller, "blob.put")
        await refused(verbs.put(who, put(scan, **changes)), code)
        report = ProgressReport(
            boot_id=changes.get("boot_id", BOOT),
            lease_id=changes.get("lease_id", scan.lease_id),
            token=changes.get("token", scan.token),
            progress=ScanProgress(step="hashing"),
        )
        await refused(verbs.progress(who, report), code)
        assert not (tmp_path / "blobs").exists()
        assert (await lab.call("scans.show", api.ById(id=scan.id))).progress is None
        trail = (await lab.call("audit.list", api.AuditRequest())).entries
        assert [entry.actor for entry in trail if entry.what == "payload-refused"] == [f"node:{caller}"] * 2


@pytest.mark.req("P4")
async def test_nothing_is_taken_after_the_lease_or_the_job_is_over(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        short = await leased(lab, "a", ttl_s=0.000_001)
        await refused(node_blobs(lab).put(CALLER, put(short)), ErrorCode.LEASE_FENCED)
        scan = await leased(lab, "b")
        await node_blobs(lab).put(CALLER, put(scan))

        def stop(tx: Any) -> None:
            job = jobs.find(tx, scan.id)
            assert job is not None
            jobs.give_up(tx, job, jobs.deadline_exceeded(job))

        await lab.store.write(stop)
        await refused(node_blobs(lab).put(CALLER, put(scan)), ErrorCode.LEASE_FENCED)
        trail = (await lab.call("audit.list", api.AuditRequest())).entries
        assert "payload-refused" not in [entry.what for entry in trail], "who is late reaches for nothing"


async def leased_probe(lab: Lab, files: dict[str, bytes]) -> tuple[LeasedScan, str]:
    await lab.hello()
    digest = await lab.scan(files)
    await lab.profile()
    assessment = await lab.assess(digest)
    await lab.approve(digest)
    probe = await lab.queue(assessment.id)
    return await claim(lab, probe.id), digest


@pytest.mark.req("P5")
async def test_a_probe_fetches_the_manifest_of_its_set_by_range(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        files = {**model_files(), **{f"extra/{number:06}.txt": b"" for number in range(8_000)}}
        lease, digest = await leased_probe(lab, files)
        verbs, caller = node_blobs(lab), Caller("node", NODE, "blob.get")

        async def get(offset: int) -> Any:
            request = NodeBlobGet(
                boot_id=BOOT, lease_id=lease.lease_id, token=lease.token, digest=digest, offset=offset
            )
            return await verbs.get(caller, request)

        data, total = b"", 1
        while len(data) < total:
            chunk = await get(len(data))
            assert 0 < len(chunk.data) <= MAX_CHUNK_BYTES
            data, total = data + chunk.data, chunk.total_bytes
        manifest = await lab.store.read(lambda tx: sets.manifest(tx, digest))
        assert total > 2 * MAX_CHUNK_BYTES
        assert data == canonical_json(manifest)
        assert f"sha256:{sha256_hex(data)}" == digest, "the node can check it against what was approved"
        await refused(get(total), ErrorCode.BLOB_REFUSED)


@pytest.mark.req("P4", "P5")
async def test_a_probe_gets_no_other_sets_manifest_and_sends_nothing(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        lease, digest = await leased_probe(lab, model_files())
        other = await lab.scan(model_files(NOTICE=b"x"), "other")
        verbs, caller = node_blobs(lab), Caller("node", NODE, "blob.get")
        asked = {"boot_id": BOOT, "lease_id": lease.lease_id, "token": lease.token, "offset": 0}
        assert (await verbs.get(caller, NodeBlobGet(digest=digest, **asked))).total_bytes > 0  # type: ignore[arg-type]
        for wish in (NodeBlobGet(digest=other, **asked), NodeBlobGet(digest=digest, **{**asked, "token": "guessed"})):  # type: ignore[arg-type]
            await refused(verbs.get(caller, wish), ErrorCode.PERMISSION_DENIED)
        await refused(verbs.put(CALLER, put(lease)), ErrorCode.PERMISSION_DENIED)
        scan = await leased(lab, "scan")
        wish = NodeBlobGet(digest=digest, **{**asked, "lease_id": scan.lease_id, "token": scan.token})  # type: ignore[arg-type]
        await refused(verbs.get(caller, wish), ErrorCode.PERMISSION_DENIED)


async def test_what_was_sent_lies_under_the_lease(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        scan = await leased(lab)
        blob = await send(lab, scan, DATA * 1_000, chunk=4_096)
        [path] = (tmp_path / "blobs").glob("*/*")
        assert (path.parent.name, path.name) == (f"node-{NODE}", f"{scan.lease_id}.{blob.sha256}")


def test_the_board_forgets_the_scan_that_was_silent_for_the_longest() -> None:
    board, told = ProgressBoard(max_scans=2), ScanProgress(step="listing")
    for scan_id in ("a", "b", "a", "c"):
        board.note(scan_id, told)
    assert [board.of(scan_id) for scan_id in ("a", "b", "c")] == [told, None, told]
    board.drop("a")
    assert board.of("a") is None
