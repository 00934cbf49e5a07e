"""What comes into the gates from outside: cleaned, bounded, refused when it is wrong, and never kept where it must not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.formats.evidence import MAX_EVIDENCE_BYTES
from adapters.payloads import EMBEDDING_INPUT
from bus import ids
from bus.codec import decode
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.messages.artifacts import FileEntry, Manifest, SetEvidence, WeightFacts
from bus.messages.blobs import MAX_INLINE_BYTES
from bus.messages.jobs import MAX_JOB_BYTES, ProbeJob, ScanJob
from bus.streams import STREAMS
from bus.subjects import Caller
from controller.gates import artifact_sets, work
from controller.settings import MAX_SCAN_FILES
from controller.store import sets
from tests.support.gates import counts, refused
from tests.support.ledger import (
    NODE,
    PATH,
    WHOLE_RUN,
    model_files,
    open_lab,
    scanned,
)


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.mark.req("P2")
async def test_the_fixed_input_is_nowhere_in_the_ledger(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
    data = bytes_below(tmp_path)
    assert assessment.id.encode() in data
    assert EMBEDDING_INPUT.encode() not in data
    assert b"runtime compatibility probe" not in data


async def test_a_profile_is_immutable_and_idempotent(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        first = await lab.profile()
        assert await lab.profile() == first
        await refused(lab.profile(batch_size=2), ErrorCode.PROFILE_CONFLICT)
        for wrong in ({"gpu_uuid": "GPU-1"}, {"threads": 5_000}, {"adapter": "os.system"}, {"adapter": ""}):
            await refused(lab.profile(name="wrong", **wrong), ErrorCode.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", ErrorCode.INVALID_ARGUMENT),
        ("a\x1b[31m", ErrorCode.INVALID_ARGUMENT),
        ("a\\b", ErrorCode.INVALID_ARGUMENT),
        ("x" * 1_025, ErrorCode.INVALID_ARGUMENT),
        ("/etc", ErrorCode.PATH_OUTSIDE_ROOT),
        ("../x", ErrorCode.PATH_OUTSIDE_ROOT),
        ("a/../../x", ErrorCode.PATH_OUTSIDE_ROOT),
    ],
)
async def test_a_path_that_can_never_be_right_is_refused_before_anything_is_written(
    tmp_path: Path, path: str, code: ErrorCode
) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        before = await counts(lab)
        request = api.ScanRequest(node=NODE, path=path, request_id="r")
        await refused(lab.call("artifacts.scan", request), code)
        assert await counts(lab) == before


async def test_a_scan_names_a_known_node_and_one_form_of_a_path(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        request = api.ScanRequest(node=NODE, path="./models//tiny/", request_id="r")
        await refused(lab.call("artifacts.scan", request), ErrorCode.NODE_UNKNOWN)
        await lab.hello()
        view = await lab.call("artifacts.scan", request)
        assert view.path == PATH
        assert await lab.call("artifacts.scan", request) == view
        other = api.ScanRequest(node=NODE, path="other", request_id="r")
        await refused(lab.call("artifacts.scan", other), ErrorCode.INVALID_ARGUMENT)


def test_a_manifest_of_more_files_than_any_scan_takes_is_refused() -> None:
    one = FileEntry(path="a", size_bytes=1, sha256="0" * 64)
    with pytest.raises(ModelForgeError) as caught:
        artifact_sets.check_manifest(Manifest(files=(one,) * (MAX_SCAN_FILES + 1)))
    assert caught.value.code is ErrorCode.EVIDENCE_REFUSED
    assert str(MAX_SCAN_FILES) in caught.value.message


async def test_a_manifest_that_is_not_canonical_is_refused(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        for files in ({"../x": b"1"}, {"/x": b"1"}, {"a//b": b"1"}, {}):
            await refused(lab.scan(files), ErrorCode.EVIDENCE_REFUSED)
        assert (await lab.rows("SELECT count(*) AS n FROM artifact_sets"))[0]["n"] == 0


@pytest.mark.req("B1")
async def test_what_a_node_sends_about_a_set_is_cleaned_and_bounded(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        manifest, _ = scanned({"config.json": b"{}", "w.bin": b"1"})
        evil = SetEvidence(
            documents={"config.json": {"a\x1b[2J": "b\x1b[31m"}, "/etc/passwd": {"x": 1}},
            weights=(
                WeightFacts(path="w.bin", format="unknown", problem="\x1b[1m"),
                WeightFacts(path="no", format="gguf"),
            ),
            notes=("\x1b]0;title\x07note",) * 1_000,
        )
        huge = SetEvidence(notes=("x" * MAX_EVIDENCE_BYTES,))
        view = await lab.call("artifacts.scan", api.ScanRequest(node=NODE, path="p", request_id="r"))
        digest = await lab.store.write(lambda tx: artifact_sets.record_scan(tx, view.id, NODE, manifest, evil))
        kept = (await lab.call("artifacts.show", api.ById(id=digest))).evidence
        assert kept.documents == {"config.json": {"a": "b"}}
        assert [facts.path for facts in kept.weights] == ["w.bin"]
        assert kept.weights[0].problem == ""
        assert set(kept.notes) == {"note"}
        assert len(kept.notes) == 100
        record = lab.store.write(lambda tx: artifact_sets.record_scan(tx, view.id, NODE, manifest, huge))
        await refused(record, ErrorCode.EVIDENCE_REFUSED)
        record = lab.store.write(lambda tx: artifact_sets.record_scan(tx, view.id, "other", manifest, evil))
        await refused(record, ErrorCode.EVIDENCE_REFUSED)


@pytest.mark.parametrize("shards", [0, 2_500, 10_000])
async def test_a_job_carries_its_manifest_only_where_it_fits(tmp_path: Path, shards: int) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan({**model_files(), **{f"shards/part-{number:05}.txt": b"" for number in range(shards)}})
        await lab.profile()
        assessment = await lab.assess(digest)
        await lab.approve(digest)
        await lab.queue(assessment.id)
        [row] = await lab.rows("SELECT payload FROM outbox WHERE topic = 'job' AND subject LIKE '%prb-%'")
        manifest = await lab.store.read(lambda tx: sets.manifest(tx, digest))
    job = decode(row["payload"], ProbeJob)
    [stream] = [one for one in STREAMS if one["name"] == "MF_JOBS"]
    assert len(row["payload"]) <= MAX_INLINE_BYTES + 4_096 < stream["max_msg_size"]
    assert len(manifest.files) == len(model_files()) + shards
    if shards:
        assert (job.manifest, job.manifest_bytes) == (None, len(canonical_json(manifest)))
    else:
        assert (job.manifest, job.manifest_bytes) == (manifest, 0)


async def test_a_job_that_the_bus_cannot_carry_never_reaches_the_outbox(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        before = await counts(lab)
        job = ScanJob(job_id="scn-0000000000", node=NODE, path="x" * MAX_JOB_BYTES, max_files=1, deadline_at=ids.now())
        order = work.Order(
            type="scan", job=job, request_key="alice:one", max_attempts=1, deadline_at=job.deadline_at,
            caller=Caller("user", "alice", "artifacts.scan"),
        )  # fmt: skip
        await refused(lab.store.write(lambda tx: work.put(tx, order)), ErrorCode.MESSAGE_TOO_LARGE)
        assert await counts(lab) == before
