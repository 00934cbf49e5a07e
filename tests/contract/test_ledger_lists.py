"""A list of digests counts for what it says and for who sent it, up to the last file that a scan takes (spec A3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.formats import sha256sums
from bus import ids
from bus.digest import sha256_hex
from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.artifacts import BlobRef
from bus.messages.blobs import BlobPut
from tests.support.gates import refused
from tests.support.ledger import NODE, Lab, model_files, open_lab

SOURCE = sha256_hex(b"the file that the operator named")
LIST = sha256sums.render({path: sha256_hex(data) for path, data in model_files().items()})
OTHER = sha256sums.render({"config.json": "0" * 64})


def blob(data: bytes) -> BlobRef:
    return BlobRef(sha256=sha256_hex(data), size_bytes=len(data))


async def send(lab: Lab, data: bytes, user: str = "alice") -> None:
    assert (await lab.call("blobs.put", BlobPut(blob=blob(data), offset=0, data=data), user=user)).complete


def asked(data: bytes) -> api.ScanRequest:
    expected = api.ExpectedManifest(kind="sha256sum", blob=blob(data), source_sha256=SOURCE)
    return api.ScanRequest(node=NODE, path="tiny", request_id=ids.new_id("req"), expected=expected)


@pytest.mark.req("A3")
@pytest.mark.parametrize("more", [0, 1])
async def test_a_list_may_name_as_many_files_as_a_scan_takes_and_no_more(tmp_path: Path, more: int) -> None:
    async with open_lab(tmp_path, scan_max_files=len(model_files()) - more) as lab:
        await lab.hello()
        await send(lab, LIST)
        if more:
            error = await refused(lab.call("artifacts.scan", asked(LIST)), ErrorCode.INVALID_ARGUMENT)
            assert f"names {len(model_files())} files" in error.message
        else:
            assert (await lab.call("artifacts.scan", asked(LIST))).expected_sha256 == SOURCE


@pytest.mark.req("A3")
async def test_a_list_that_was_used_serves_its_sender_again_and_nobody_else(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        await refused(lab.call("artifacts.scan", asked(LIST)), ErrorCode.BLOB_REFUSED)
        await send(lab, LIST)
        first = await lab.call("artifacts.scan", asked(LIST))
        second = await lab.call("artifacts.scan", asked(LIST))
        assert first.id != second.id
        assert first.expected_sha256 == second.expected_sha256 == SOURCE
        await refused(lab.call("artifacts.scan", asked(LIST), user="bob"), ErrorCode.BLOB_REFUSED)
        # A list that was never sent, said to be made of the same file.
        await refused(lab.call("artifacts.scan", asked(OTHER)), ErrorCode.BLOB_REFUSED)


@pytest.mark.req("A3", "G4")
@pytest.mark.parametrize("key", ["", "\x1b[31m", "x" * 201])
async def test_the_key_of_a_signature_is_a_line_that_can_be_shown(tmp_path: Path, key: str) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        await send(lab, LIST)
        expected = api.ExpectedManifest(kind="openssf_signature", blob=blob(LIST), source_sha256=SOURCE, key=key)
        request = api.ScanRequest(node=NODE, path="tiny", request_id=ids.new_id("req"), expected=expected)
        await refused(lab.call("artifacts.scan", request), ErrorCode.INVALID_ARGUMENT)
        assert await lab.rows("SELECT id FROM scans") == []
