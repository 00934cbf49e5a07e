"""A list of digests from outside: a scan ends well only when the folder holds exactly what the list names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.formats import sha256sums
from bus import ids
from bus.digest import sha256_hex
from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.artifacts import BlobRef, ExpectationKind, ScanView
from bus.messages.blobs import BlobPut
from tests.support.gates import counts, refused
from tests.support.leased_scans import claim, end
from tests.support.ledger import NODE, PATH, Lab, model_files, open_lab, scanned

SOURCE = b"the file that the operator named"


def list_of(files: Mapping[str, bytes]) -> bytes:
    return sha256sums.render({path: sha256_hex(data) for path, data in files.items()})


async def upload(lab: Lab, data: bytes, user: str = "alice") -> BlobRef:
    blob = BlobRef(sha256=sha256_hex(data), size_bytes=len(data))
    state = await lab.call("blobs.put", BlobPut(blob=blob, offset=0, data=data), user=user)
    assert state.complete
    return blob


def request_of(blob: BlobRef, *, path: str = PATH, request_id: str = "", **fields: Any) -> api.ScanRequest:
    kind: ExpectationKind = fields.get("kind", "sha256sum")
    expected = api.ExpectedManifest(kind=kind, blob=blob, source_sha256=sha256_hex(SOURCE), key=fields.get("key"))
    return api.ScanRequest(node=NODE, path=path, request_id=request_id or ids.new_id("req"), expected=expected)


async def scan(lab: Lab, listed: Mapping[str, bytes], found: Mapping[str, bytes], **fields: Any) -> ScanView:
    """A scan that expects the one and finds the other."""
    blob = await upload(lab, list_of(listed))
    view = await lab.call("artifacts.scan", request_of(blob, **fields))
    assert view.expected_sha256 == sha256_hex(SOURCE)
    return await end(lab, await claim(lab, view.id), scanned(found))


@pytest.mark.req("A3", "G4")
async def test_a_set_that_equals_the_list_says_so(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        view = await scan(lab, model_files(), model_files())
        assert (view.state, view.failure) == ("succeeded", None)
        assert view.set_digest is not None
        shown = await lab.call("artifacts.show", api.ById(id=view.set_digest))
        [met] = shown.expectations
        assert (met.kind, met.sha256, met.key, met.required_by, met.scan_id) == (
            "sha256sum", sha256_hex(SOURCE), None, "alice", view.id,
        )  # fmt: skip
        trail = await lab.call("audit.list", api.AuditRequest(id=view.set_digest))
        assert "expectation-met" in [entry.what for entry in trail.entries]
        again = await scan(lab, model_files(), model_files(), kind="openssf_signature", key="ed25519:abc")
        [met] = (await lab.call("artifacts.list", api.Page())).sets[0].expectations
        assert (met.kind, met.key, met.scan_id) == ("openssf_signature", "ed25519:abc", again.id), "the newest counts"


@pytest.mark.req("A3", "G4")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config.json": b"{}"}, "; 1 different: config.json"),
        ({"config.json": None}, "; 1 missing: config.json"),
        ({"more.txt": b"x"}, "; 1 surplus: more.txt"),
        ({"model.safetensors": None, "model.bin": b"x"}, "; 1 missing: model.safetensors; 1 surplus: model.bin"),
    ],
)
async def test_a_folder_that_does_not_equal_the_list_gives_no_set(
    tmp_path: Path, change: dict[str, bytes | None], words: str
) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        view = await scan(lab, model_files(), model_files(**change))
        assert view.state == "failed"
        assert view.failure is not None
        assert view.failure.code == ErrorCode.EXPECTED_MANIFEST_MISMATCH
        assert words in view.failure.message
        assert view.set_digest is None
        assert (await lab.call("artifacts.list", api.Page())).sets == ()
        assert (await lab.rows("SELECT count(*) AS n FROM set_expectations"))[0]["n"] == 0


@pytest.mark.req("A3")
async def test_a_mismatch_names_a_few_files_and_how_many_there_are(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        more = {
            f"extra/{number:04}\x1b[31m.txt" if number == 0 else f"extra/{number:04}.txt": b"" for number in range(40)
        }
        listed = {**model_files(), **more}
        view = await scan(lab, listed, model_files())
        assert view.failure is not None
        assert "\x1b" not in view.failure.message
        assert "extra/0004.txt and 35 more" in view.failure.message
        assert "extra/0005.txt" not in view.failure.message
        assert view.failure.context == {
            "different": "0", "missing": "40", "surplus": "0", "first_missing": "extra/0000.txt",
        }  # fmt: skip


@pytest.mark.req("A3")
async def test_the_list_itself_may_lie_in_the_folder(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        view = await scan(lab, model_files(), model_files(SHA256SUMS=SOURCE))
        assert view.state == "succeeded"
        view = await scan(lab, model_files(), model_files(SHA256SUMS=SOURCE + b"x"))
        assert view.state == "failed"


@pytest.mark.req("A3")
async def test_the_list_may_lie_there_once_and_further_copies_are_surplus(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        copies = {"a.sums": SOURCE, "b.sums": SOURCE, "zz/model.bin": SOURCE}
        view = await scan(lab, model_files(), model_files(**copies))
        assert view.failure is not None
        assert view.failure.message.endswith("; 2 surplus: b.sums, zz/model.bin")
        listed = await scan(lab, model_files(**{"a.sums": SOURCE}), model_files(**{"a.sums": SOURCE, "b.sums": SOURCE}))
        assert listed.state == "succeeded", "a member that is listed is not the list beside the members"


def below(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{path}": data for path, data in files.items()}


@pytest.mark.req("A3")
@pytest.mark.parametrize(
    ("listed", "found", "words"),
    [
        (
            below("good", model_files()),
            model_files(),
            "the list's paths begin with good/: make it inside the folder; ",
        ),
        (
            below("models/good", model_files()),
            model_files(),
            "the list's paths begin with models/good/: make it inside the folder; ",
        ),
        (
            below("up", below("in", model_files())),
            below("in", model_files()),
            "the list's paths begin with up/: make it inside the folder; ",
        ),
        (
            model_files(),
            {**below("good", model_files()), "SHA256SUMS": SOURCE},
            "the files of the list lie in good/: scan that folder; ",
        ),
        (below("good", model_files()), {"other.bin": b"x"}, "5 missing: "),
        ({**below("good", model_files()), "README.md": b"x"}, model_files(), "6 missing: "),
        (model_files(), below("good", {"other.bin": b"x"}), "5 missing: "),
    ],
)
async def test_a_list_that_was_made_one_level_off_is_told_so(
    tmp_path: Path, listed: dict[str, bytes], found: dict[str, bytes], words: str
) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        view = await scan(lab, listed, found)
        assert view.failure is not None
        assert f"the folder does not hold what the list names; {words}" in view.failure.message
        assert ("first_missing" in view.failure.context, "first_different" in view.failure.context) == (True, False)


@pytest.mark.req("A18")
async def test_a_place_loses_the_set_that_a_mismatch_found_replaced(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        await scan(lab, {"config.json": b"never there"}, model_files())
        assert (await lab.call("artifacts.show", api.ById(id=first))).locations[0].path == PATH, (
            "the same set lies there"
        )
        await scan(lab, model_files(), model_files(**{"config.json": b"{}"}))
        assert (await lab.call("artifacts.show", api.ById(id=first))).locations == ()
        trail = await lab.call("audit.list", api.AuditRequest(id=first))
        assert (trail.entries[0].what, trail.entries[0].detail["code"]) == (
            "location-lost", "EXPECTED_MANIFEST_MISMATCH",
        )  # fmt: skip


@pytest.mark.req("A3")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no list at all", "line 1"),
        (b"\n", "names no file"),
        (b"0" * 64 + b"  /etc/passwd\n", "absolute"),
        (b"0" * 64 + b"  ../x\n", "leaves the set's folder"),
        (b"".join(b"%064d  f%d\n" % (number, number) for number in range(6)), "names 6 files"),
    ],
)
async def test_a_list_that_cannot_be_used_queues_nothing(tmp_path: Path, data: bytes, words: str) -> None:
    async with open_lab(tmp_path, scan_max_files=5) as lab:
        await lab.hello()
        before = await counts(lab)
        error = await refused(
            lab.call("artifacts.scan", request_of(await upload(lab, data))), ErrorCode.INVALID_ARGUMENT
        )
        assert words in error.message
        assert await counts(lab) == before


@pytest.mark.req("A3", "G4")
@pytest.mark.parametrize(
    "fields", [{"kind": "openssf_signature"}, {"key": "a-key"}, {"kind": "openssf_signature", "key": "\x1b"}]
)
async def test_a_key_and_a_signature_belong_together(tmp_path: Path, fields: dict[str, str]) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        blob = await upload(lab, list_of(model_files()))
        await refused(lab.call("artifacts.scan", request_of(blob, **fields)), ErrorCode.INVALID_ARGUMENT)


@pytest.mark.req("A3")
async def test_a_list_that_was_never_sent_is_refused_and_another_users_is_not_found(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        blob = await upload(lab, list_of(model_files()), user="bob")
        before = await counts(lab)
        await refused(lab.call("artifacts.scan", request_of(blob)), ErrorCode.BLOB_REFUSED)
        assert await counts(lab) == before


@pytest.mark.req("A3")
async def test_one_list_that_is_sent_twice_at_one_moment_serves_both_scans(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        data = list_of(model_files())
        first, second = await upload(lab, data), await upload(lab, data)
        await lab.call("artifacts.scan", request_of(first, path="one"))
        view = await lab.call("artifacts.scan", request_of(second, path="two"))
        ended = await end(lab, await claim(lab, view.id), scanned(model_files()))
        assert (ended.state, ended.expected_sha256) == ("succeeded", sha256_hex(SOURCE))
        other = BlobRef(sha256=sha256_hex(list_of({"x": b""})), size_bytes=1)
        await refused(lab.call("artifacts.scan", request_of(other)), ErrorCode.BLOB_REFUSED)
        await refused(lab.call("artifacts.scan", request_of(first), user="bob"), ErrorCode.BLOB_REFUSED)


@pytest.mark.req("A3")
async def test_a_list_is_gone_when_it_was_used_and_a_repeated_request_needs_it_no_more(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        blob = await upload(lab, list_of(model_files()))
        request = request_of(blob, request_id="one")
        view = await lab.call("artifacts.scan", request)
        assert list((tmp_path / "blobs").glob("*/*")) == []
        assert await lab.call("artifacts.scan", request) == view
        plain = api.ScanRequest(node=NODE, path=PATH, request_id="one")
        await refused(lab.call("artifacts.scan", plain), ErrorCode.INVALID_ARGUMENT)
