"""Sets and their places: what a reply can hold, what became corrupt, and what changed when another set lies there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus import ids
from bus.codec import encode
from bus.digest import sha256_hex
from bus.errors import Failure
from bus.messages import api
from bus.messages.artifacts import ArtifactSet, FileEntry, Manifest, PickleFacts, ScanProgress, SetEvidence, WeightFacts
from bus.messages.blobs import ProgressReport
from bus.subjects import Caller
from controller.api_base import MAX_LIST_BYTES
from controller.gates import artifact_sets
from controller.set_views import fitting
from controller.store import sets
from tests.support.leased_scans import BOOT, end, leased, node_blobs
from tests.support.ledger import NODE, PATH, Lab, model_files, open_lab, scanned

CHANGED = Failure(code="ARTIFACT_CHANGED", message="config.json: other bytes", context={"file": "config.json"})


async def shown(lab: Lab, digest: str) -> ArtifactSet:
    found: ArtifactSet = await lab.call("artifacts.show", api.ById(id=digest))
    return found


async def found_changed(lab: Lab, digest: str, failure: Failure = CHANGED, path: str = PATH) -> None:
    await lab.store.write(
        lambda tx: artifact_sets.location_lost(tx, NODE, path, failure, job_id="prb-0000000001", digest=digest)
    )


async def newest(lab: Lab, digest: str) -> tuple[str, dict[str, str]]:
    entry = (await lab.call("audit.list", api.AuditRequest(id=digest))).entries[0]
    return entry.what, entry.detail


@pytest.mark.req("A5", "A18")
async def test_a_place_where_a_probe_met_other_bytes_is_corrupt_and_names_the_file(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        await found_changed(lab, digest)
        [place] = (await shown(lab, digest)).locations
        assert (place.path, place.state, place.file, place.problem, place.found_by) == (
            PATH, "corrupt", "config.json", "other bytes", "prb-0000000001",
        )  # fmt: skip
        assert place.found_at is not None
        what, detail = await newest(lab, digest)
        assert (what, detail["file"], detail["problem"]) == ("location-corrupt", "config.json", "other bytes")
        assert await lab.scan() == digest
        [place] = (await shown(lab, digest)).locations
        assert (place.state, place.file, place.problem, place.found_at, place.found_by) == (
            "present", None, None, None, None,
        )  # fmt: skip


async def test_a_word_without_a_file_still_says_what_is_wrong(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        await found_changed(lab, digest, Failure(code="ARTIFACT_CHANGED", message=""))
        [place] = (await shown(lab, digest)).locations
        assert (place.state, place.file, place.problem) == ("corrupt", None, "ARTIFACT_CHANGED")


async def test_a_word_about_another_set_or_another_fault_changes_no_place(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        second = await lab.scan(model_files(NOTICE=b"x"))
        await found_changed(lab, first)
        await found_changed(lab, second, Failure(code="GPU_OOM", message="no memory"))
        assert (await shown(lab, second)).locations[0].state == "present"
        assert (await shown(lab, first)).locations == ()


async def test_a_sound_place_is_taken_before_a_corrupt_one(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan(path="a")
        await lab.scan(path="b")
        await found_changed(lab, digest, path="a")

        async def place(path: str | None = None) -> tuple[str, str] | None:
            found = await lab.store.read(lambda tx: sets.place_on(tx, digest, NODE, path))
            return None if found is None else (found.path, found.state)

        assert [await place(), await place("a"), await place("b")] == [
            ("b", "present"),
            ("a", "corrupt"),
            ("b", "present"),
        ]
        await found_changed(lab, digest, path="b")
        assert await place() == ("a", "corrupt"), "there is no better one"
        assert await place("elsewhere") is None
        await lab.scan(model_files(NOTICE=b"x"), "b")
        assert await place("b") is None, "another set lies there"


@pytest.mark.req("A18", "G6")
async def test_a_replaced_set_names_the_members_that_changed(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        many: dict[str, bytes | None] = {f"new-{number}": b"" for number in range(9)}
        await lab.scan(model_files(**{"config.json": b"{}", "tokenizer.json": None, **many}))
        trail = (await lab.call("audit.list", api.AuditRequest(id=first))).entries
        [detail] = [entry.detail for entry in trail if entry.what == "replaced"]
        assert (detail["changed"], detail["removed"], detail["added"]) == (
            "config.json", "tokenizer.json", "new-0, new-1, new-2, new-3, new-4 and 4 more",
        )  # fmt: skip


def large_set(members: int) -> tuple[Manifest, SetEvidence]:
    entries = tuple(
        FileEntry(path=f"images/{number:06}.png", size_bytes=number, sha256=sha256_hex(b"%d" % number))
        for number in range(members)
    )
    return Manifest(files=entries), SetEvidence(formats={entry.path: "image" for entry in entries}, scanner="scan.2")


async def test_a_set_of_ten_thousand_files_is_shown_and_its_members_are_had_page_by_page(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        manifest, evidence = large_set(10_000)
        scan = await leased(lab, "images")
        view = await end(lab, scan, (manifest, evidence))
        assert view.set_digest == manifest.digest(), view.failure
        found = await shown(lab, view.set_digest)
        assert (found.manifest, found.file_count) == (None, 10_000)
        assert len(encode(found)) <= MAX_LIST_BYTES
        members: list[FileEntry] = []
        while len(members) < 10_000:
            page = await lab.call("artifacts.files", api.FilesRequest(id=view.set_digest, offset=len(members)))
            assert (page.digest, page.offset, page.total) == (view.set_digest, len(members), 10_000)
            assert page.files
            assert len(encode(page)) <= MAX_LIST_BYTES + 1_024
            members.extend(page.files)
        assert tuple(members) == manifest.files
        end_page = await lab.call("artifacts.files", api.FilesRequest(id=view.set_digest, offset=10_000))
        assert (end_page.files, end_page.total) == ((), 10_000)
        few = await lab.call("artifacts.files", api.FilesRequest(id=view.set_digest, offset=5, limit=2))
        assert few.files == manifest.files[5:7]


async def test_a_page_of_long_names_is_shorter_and_none_is_lost(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        names = [f"{number:05}-{'é' * 450}" for number in range(1_500)]
        manifest = Manifest(files=tuple(FileEntry(path=name, size_bytes=0, sha256="0" * 64) for name in names))
        view = await end(lab, await leased(lab, "long"), (manifest, SetEvidence()))
        assert view.set_digest is not None, view.failure
        page = await lab.call("artifacts.files", api.FilesRequest(id=view.set_digest))
        assert 0 < len(page.files) < 1_500
        rest = await lab.call("artifacts.files", api.FilesRequest(id=view.set_digest, offset=len(page.files)))
        assert [file.path for file in (*page.files, *rest.files)] == names


def hostile_set(**evidence: Any) -> ArtifactSet:
    return ArtifactSet(
        digest="sha256:" + "0" * 64, file_count=1, size_bytes=1, created_at=ids.now(), evidence=SetEvidence(**evidence)
    )


PICKLES = tuple(
    PickleFacts(
        path=f"p-{number}", verdict="tensors", reason="r" * 100, imports=tuple(f"m.{name}" for name in range(40))
    )
    for number in range(3_000)
)
BAD = PickleFacts(path="worst", verdict="code", reason="it names os.system", imports=("os.system",))
WEIGHTS = tuple(
    WeightFacts(path=f"w-{number}", format="gguf", metadata={f"k-{key}": "v" * 60 for key in range(20)})
    for number in range(1_000)
)


@pytest.mark.parametrize(
    ("evidence", "kept"),
    [
        ({"formats": {f"f-{number}": "image" for number in range(60_000)}, "scanner": "scan.2"}, "scanner"),
        ({"pickles": (*PICKLES, BAD)}, "pickles"),
        ({"weights": WEIGHTS}, "weights"),
        ({"documents": {f"{number}.json": {"text": "x" * 4_000} for number in range(300)}}, None),
        (
            {"weights": tuple(WeightFacts(path="w", format="gguf", metadata={"k": "v" * 900_000}) for _ in range(2))},
            None,
        ),
    ],
)
def test_evidence_that_fits_no_message_is_cut_and_it_is_said(evidence: dict[str, Any], kept: str | None) -> None:
    found = fitting(hostile_set(**evidence), MAX_LIST_BYTES)
    assert len(encode(found)) <= MAX_LIST_BYTES
    assert found.evidence is not None
    assert any("left out of this reply" in note for note in found.evidence.notes)
    if kept is not None:
        assert getattr(found.evidence, kept)
    if kept == "pickles":
        assert BAD in found.evidence.pickles, "the dangerous ones stay the longest"


def test_evidence_that_fits_stays_whole() -> None:
    found = hostile_set(formats={"a": "image"}, pickles=(BAD,), notes=("a note",))
    assert fitting(found, MAX_LIST_BYTES) == found


async def test_a_small_set_is_shown_with_its_manifest(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        manifest, _ = scanned(model_files())
        assert (await shown(lab, await lab.scan())).manifest == manifest


async def test_a_scan_shows_how_far_it_is_while_it_runs(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        scan = await leased(lab)
        told = ScanProgress(step="hashing", files_done=1, files_total=5, bytes_done=10, bytes_total=50)
        report = ProgressReport(boot_id=BOOT, lease_id=scan.lease_id, token=scan.token, progress=told)
        await node_blobs(lab).progress(Caller("node", NODE, "progress"), report)
        assert (await lab.call("scans.show", api.ById(id=scan.id))).progress == told
        view = await end(lab, scan, scanned(model_files()))
        assert (view.state, view.progress) == ("succeeded", None)


async def test_a_scan_reads_every_byte_again_when_it_is_asked_to(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        await leased(lab, "a")
        await leased(lab, "b", fresh=True)
        rows = await lab.rows("SELECT json_extract(payload, '$.fresh') AS fresh FROM jobs ORDER BY queued_at")
        assert [bool(row["fresh"]) for row in rows] == [False, True]
