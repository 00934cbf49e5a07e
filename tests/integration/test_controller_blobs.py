"""Sets that fit no message: sent in chunks over a real server, recorded whole, and fetched again by range."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import FileEntry, Manifest
from controller.intake import MAX_DELIVERIES
from observability.vitals import Loop
from tests.support.controllers import Bench, controller_bench
from tests.support.fake_agent import FakeAgent, compatible_set
from tests.support.waiting import until

CHUNK = 256 * 1024
MEMBERS = 10_000


def large_set() -> tuple[Manifest, bytes, bytes]:
    """A compatible set with ten thousand members: its manifest, and both parts as they travel."""
    small = json.loads(compatible_set().manifest)["files"]
    files = [FileEntry(**file) for file in small]
    files += [
        FileEntry(path=f"x/{number:06}-{'n' * 80}.png", size_bytes=1, sha256="b" * 64) for number in range(MEMBERS)
    ]
    manifest = Manifest(files=tuple(sorted(files, key=lambda file: file.path)))
    plain = [{"path": file.path, "sha256": file.sha256, "size_bytes": file.size_bytes} for file in manifest.files]
    evidence = json.loads(compatible_set().evidence)
    evidence["formats"] = {file.path: "image" for file in manifest.files if file.path.startswith("x/")}
    return manifest, json.dumps({"files": plain}).encode(), json.dumps(evidence).encode()


def blob_of(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}


def under(agent: FakeAgent, lease: dict[str, Any]) -> dict[str, Any]:
    return {"boot_id": agent.boot, "lease_id": lease["lease_id"], "token": lease["token"]}


async def send(
    agent: FakeAgent, lease: dict[str, Any], data: bytes, begin: int = 0, end: int | None = None
) -> dict[str, Any]:
    """Send a payload, or a part of it, as the documentation says; the blob as evidence names it."""
    blob = blob_of(data)
    for offset in range(begin, len(data) if end is None else end, CHUNK):
        piece = base64.b64encode(data[offset : offset + CHUNK]).decode()
        await agent.call("blob.put", {**under(agent, lease), "blob": blob, "offset": offset, "data": piece})
    return blob


async def ended(bench: Bench, scan_id: str) -> dict[str, Any]:
    async def over() -> dict[str, Any] | None:
        view = await bench.call("scans.show", id=scan_id)
        return view if view["state"] in {"succeeded", "failed"} else None

    view: dict[str, Any] = await until(over, f"{scan_id} ends")
    return view


def stored(bench: Bench) -> list[Path]:
    return sorted(path for path in bench.settings.blobs.rglob("*") if path.is_file())


async def report(agent: FakeAgent, taken: Any, lease: dict[str, Any], manifest: Any, evidence: Any) -> None:
    await agent.finish_scan(
        taken, lease, manifest_json=None, evidence_json=None, manifest_blob=manifest, evidence_blob=evidence
    )


@pytest.mark.req("P5", "G4")
async def test_a_set_of_ten_thousand_files_goes_the_whole_way(tmp_path: Path) -> None:
    manifest, data, evidence = large_set()
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        taken = await agent.pull()
        lease = await agent.claim(taken)
        told = {"step": "hashing", "files_done": 5, "files_total": MEMBERS}
        await agent.call("progress", {**under(agent, lease), "progress": told})
        assert (await bench.call("scans.show", id=scan_id))["progress"]["files_done"] == 5
        await report(agent, taken, lease, await send(agent, lease, data), await send(agent, lease, evidence))
        view = await ended(bench, scan_id)
        assert view["set_digest"] == manifest.digest(), view["failure"]
        await until(lambda: stored(bench) == [], "what was used is removed")
        shown = await bench.call("artifacts.show", id=view["set_digest"])
        assert (shown["manifest"], shown["file_count"]) == (None, len(manifest.files))
        page = await bench.call("artifacts.files", id=view["set_digest"], offset=len(manifest.files) - 3)
        assert [file["path"] for file in page["files"]] == [file.path for file in manifest.files[-3:]]
        await bench.call("profiles.create", profile={"name": "cpu-small"})
        assessment = await bench.call(
            "assessments.create", set_digest=view["set_digest"], profile="cpu-small", node="local"
        )
        await bench.call("approvals.add", set_digest=view["set_digest"], purpose="lab_execution", reason="a test")
        assert assessment["verdict"] == "compatible", assessment["findings"]
        await bench.queue(assessment["id"])
        probe = await agent.pull()
        assert (probe.job["manifest"], probe.job["set_digest"]) == (None, view["set_digest"])
        assert await fetched(agent, await agent.claim(probe), probe.job) == view["set_digest"]


async def fetched(agent: FakeAgent, lease: dict[str, Any], job: dict[str, Any]) -> str:
    """The digest of the manifest, fetched piece by piece."""
    data, total = b"", int(job["manifest_bytes"])
    while len(data) < total:
        body = {**under(agent, lease), "digest": job["set_digest"], "offset": len(data)}
        chunk = await agent.call("blob.get", body)
        assert int(chunk["total_bytes"]) == total
        data += base64.b64decode(chunk["data"])
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def test_an_upload_goes_on_after_the_controller_was_restarted(tmp_path: Path) -> None:
    manifest, data, evidence = large_set()
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        taken = await agent.pull()
        lease = await agent.claim(taken)
        await send(agent, lease, data, end=2 * CHUNK)
        await bench.stop()
        await bench.start()
        asked = {**under(agent, lease), "blob": blob_of(data), "offset": 0}
        assert int((await agent.call("blob.put", asked))["received_bytes"]) == 2 * CHUNK
        blob = await send(agent, lease, data, begin=2 * CHUNK)
        await report(agent, taken, lease, blob, await send(agent, lease, evidence))
        assert (await ended(bench, scan_id))["set_digest"] == manifest.digest()


@pytest.mark.req("B1")
@pytest.mark.parametrize("how", ["missing", "unfinished", "broken", "no-manifest", "wrong-kind"])
async def test_a_payload_that_is_not_there_ends_its_scan_and_stops_no_other(tmp_path: Path, how: str) -> None:
    _, data, evidence = large_set()
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        taken = await agent.pull()
        lease = await agent.claim(taken)
        second = await send(agent, lease, evidence)
        first: dict[str, Any] = blob_of(data)
        if how == "unfinished":
            await send(agent, lease, data, end=CHUNK)
        elif how == "broken":
            await send(agent, lease, data)
            [path] = [path for path in stored(bench) if first["sha256"] in path.name]
            path.write_bytes(data[:-1] + b" ")
        elif how == "wrong-kind":
            first = await send(agent, lease, b'{"files": 7}')
        await report(agent, taken, lease, None if how == "no-manifest" else first, second)
        view = await ended(bench, scan_id)
        codes = {"no-manifest": "MALFORMED_MESSAGE", "wrong-kind": "MALFORMED_MESSAGE"}
        assert (view["state"], view["failure"]["code"]) == ("failed", codes.get(how, "BLOB_REFUSED"))
        assert bench.controller.faults.counts[Loop.EVIDENCE] == 0
        await until(lambda: stored(bench) == [], "nothing of the scan is left")
        again = await bench.scan("other")
        await agent.finish_scan(await agent.pull())
        assert (await ended(bench, again))["state"] == "succeeded"


@pytest.mark.req("D2")
async def test_a_set_that_the_disk_has_no_room_for_ends_its_scan_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.intake.GIVE_BACK_S", 0.05)
    _, data, evidence = large_set()
    async with controller_bench(tmp_path) as bench:

        def room(pages: int) -> Callable[[sqlite3.Connection], None]:
            def limit(connection: sqlite3.Connection) -> None:
                [used] = connection.execute("PRAGMA page_count").fetchone()
                connection.execute(f"PRAGMA max_page_count = {used + pages}")

            return limit

        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        taken = await agent.pull()
        lease = await agent.claim(taken)
        sent = [await send(agent, lease, part) for part in (data, evidence)]
        await bench.store._writer.call(room(100))
        await report(agent, taken, lease, *sent)
        view = await ended(bench, scan_id)
        assert (view["state"], view["failure"]["code"]) == ("failed", "STORE_UNAVAILABLE")
        assert bench.controller.faults.counts[Loop.EVIDENCE] == MAX_DELIVERIES - 1
        assert (await bench.call("artifacts.list"))["sets"] == []
        await until(lambda: stored(bench) == [], "nothing of the scan is left")
        await bench.store._writer.call(room(100_000))
        again = await bench.scan()
        taken = await agent.pull()
        lease = await agent.claim(taken)
        await report(agent, taken, lease, *[await send(agent, lease, part) for part in (data, evidence)])
        assert (await ended(bench, again))["state"] == "succeeded"


async def test_what_nobody_uses_is_swept(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, blob_keep_s=3_600.0, blob_sweep_s=0.05) as bench:
        agent = await bench.agent()
        await agent.hello()
        await bench.scan()
        lease = await agent.claim(await agent.pull())
        await send(agent, lease, b"one that is new")
        await send(agent, lease, b"one that is old")
        old = blob_of(b"one that is old")["sha256"]
        [path] = [path for path in stored(bench) if old in path.name]
        os.utime(path, (1, 1))
        await until(lambda: len(stored(bench)) == 1, "the old one is gone")
        assert old not in stored(bench)[0].name


@pytest.mark.req("B2", "P4")
async def test_another_node_gets_nothing_through_a_lease_that_is_not_its_own(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, nodes=("local", "other")) as bench:
        agent, thief = await bench.agent(), await bench.agent("other")
        await agent.hello()
        await thief.hello()
        await bench.scan()
        lease = await agent.claim(await agent.pull())
        with pytest.raises(ModelForgeError) as raised:
            await send(thief, lease, b"mine now")
        assert raised.value.code == ErrorCode.PERMISSION_DENIED
        with pytest.raises(ModelForgeError) as raised:
            await thief.call("progress", {**under(agent, lease), "progress": {"step": "hashing"}})
        assert raised.value.code == ErrorCode.PERMISSION_DENIED
        assert stored(bench) == []


@pytest.mark.req("A3")
async def test_a_list_of_digests_travels_and_is_compared(tmp_path: Path) -> None:
    found = json.loads(compatible_set().manifest)["files"]
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        for change, state in (("", "succeeded"), ("x", "failed")):
            lines = [f"{file['sha256']}  {file['path']}{change}\n" for file in found]
            data = "".join(lines).encode()
            await bench.call("blobs.put", blob=blob_of(data), offset=0, data=base64.b64encode(data).decode())
            expected = {"kind": "sha256sum", "blob": blob_of(data), "source_sha256": "c" * 64}
            scan = await bench.call(
                "artifacts.scan", node="local", path=f"model{change}", request_id=f"r{change}", expected=expected
            )
            await agent.finish_scan(await agent.pull())
            view = await ended(bench, scan["id"])
            assert (view["state"], view["expected_sha256"]) == (state, "c" * 64)
        assert view["failure"]["code"] == "EXPECTED_MANIFEST_MISMATCH"
        [one] = (await bench.call("artifacts.list"))["sets"]
        assert [met["sha256"] for met in one["expectations"]] == ["c" * 64]
