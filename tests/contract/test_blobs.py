"""Large payloads: whole or not there, taken up where they stopped, bounded, and gone when they were used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import BlobRef
from bus.messages.blobs import MAX_BLOB_BYTES
from bus.subjects import Caller
from controller.blob_files import BlobLimits, Place
from controller.blobs import BlobStore, node_place, place_of
from tests.support.gates import refused

DATA = bytes(range(256)) * 40
BLOB = BlobRef(sha256=sha256_hex(DATA), size_bytes=len(DATA))
PLACE = node_place("local", "lse-0000000001")
LIMITS = BlobLimits(caller_bytes=50_000, caller_blobs=4, total_bytes=60_000)


@asynccontextmanager
async def opened(folder: Path, limits: BlobLimits = LIMITS) -> AsyncIterator[BlobStore]:
    store = BlobStore(folder / "blobs", limits)
    try:
        yield store
    finally:
        store.close()


async def send(store: BlobStore, data: bytes = DATA, place: Place = PLACE, chunk: int = 4_096) -> BlobRef:
    blob = BlobRef(sha256=sha256_hex(data), size_bytes=len(data))
    at, complete = 0, False
    while not complete:
        state = await store.put(place, blob, at, data[at : at + chunk])
        assert state.received_bytes > at
        at, complete = state.received_bytes, state.complete
    return blob


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "blobs").rglob("*") if path.is_file())


async def test_a_payload_arrives_in_chunks_and_is_read_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert (await store.put(PLACE, BLOB, 0, b"")).received_bytes == 0
        assert not (tmp_path / "blobs").exists(), "asking makes nothing"
        assert await send(store) == BLOB
        assert await store.read(PLACE, BLOB) == DATA
        assert files(tmp_path) == [f"{PLACE.shelf}.{BLOB.sha256}"]
        again = await store.put(PLACE, BLOB, 0, DATA[:10])
        assert (again.received_bytes, again.complete) == (len(DATA), True)
        assert (tmp_path / "blobs").stat().st_mode & 0o077 == 0


async def test_an_upload_goes_on_where_a_restart_ended_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(PLACE, BLOB, 0, DATA[:5_000])
        await refused(store.read(PLACE, BLOB), ErrorCode.BLOB_REFUSED)
    async with opened(tmp_path) as store:
        asked = await store.put(PLACE, BLOB, 0, b"")
        assert (asked.received_bytes, asked.complete) == (5_000, False)
        await refused(store.read(PLACE, BLOB), ErrorCode.BLOB_REFUSED)
        assert (await store.put(PLACE, BLOB, 5_000, DATA[5_000:])).complete
        assert await store.read(PLACE, BLOB) == DATA


async def test_an_upload_that_was_cut_off_before_its_name_is_finished_when_it_is_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(PLACE, BLOB, 0, DATA[:5_000])
        [part] = files(tmp_path)
        (tmp_path / "blobs" / PLACE.owner / part).write_bytes(DATA)
        assert (await store.put(PLACE, BLOB, 0, b"")).complete
        assert await store.read(PLACE, BLOB) == DATA


@pytest.mark.parametrize("offset", [0, 4_999, 5_001, 9_000])
async def test_a_chunk_that_is_not_the_next_one_changes_nothing(tmp_path: Path, offset: int) -> None:
    async with opened(tmp_path) as store:
        await store.put(PLACE, BLOB, 0, DATA[:5_000])
        state = await store.put(PLACE, BLOB, offset, b"y" * 100)
        assert (state.received_bytes, state.complete) == (5_000, False)
        assert (await store.put(PLACE, BLOB, 5_000, DATA[5_000:])).complete


async def test_bytes_with_another_digest_are_never_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(PLACE, BLOB, 0, DATA[:5_000])
        wrong = store.put(PLACE, BLOB, 5_000, DATA[5_000:-1] + b"\x00")
        await refused(wrong, ErrorCode.BLOB_REFUSED)
        assert files(tmp_path) == [], "the upload begins again"
        assert (await store.put(PLACE, BLOB, 0, b"")).received_bytes == 0


@pytest.mark.parametrize("size", [0, MAX_BLOB_BYTES + 1])
async def test_a_size_that_is_none_and_a_chunk_behind_the_end_are_refused(tmp_path: Path, size: int) -> None:
    async with opened(tmp_path, BlobLimits(caller_bytes=2**40, caller_blobs=4, total_bytes=2**40)) as store:
        odd = BlobRef(sha256=BLOB.sha256, size_bytes=size)
        await refused(store.put(PLACE, odd, 0, b""), ErrorCode.BLOB_REFUSED)
        await refused(store.put(PLACE, BLOB, 0, DATA + b"x"), ErrorCode.BLOB_REFUSED)
        assert not (tmp_path / "blobs").exists()


async def test_what_is_announced_is_bounded_for_each_caller_and_for_all(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        large = BlobRef(sha256="1" * 64, size_bytes=45_000)
        await store.put(PLACE, large, 0, b"x")
        error = await refused(store.put(PLACE, BLOB, 0, DATA), ErrorCode.BLOB_REFUSED)
        assert "this caller would have more" in error.message
        other = node_place("other", "lse-0000000002")
        await send(store, place=other)
        error = await refused(
            store.put(other, BlobRef(sha256="2" * 64, size_bytes=5_000), 0, b"x"), ErrorCode.BLOB_REFUSED
        )
        assert "of all callers" in error.message
        for number in range(3):
            await store.put(other, BlobRef(sha256=f"{number}" * 64, size_bytes=100), 0, b"x")
        error = await refused(store.put(other, BlobRef(sha256="9" * 64, size_bytes=2), 0, b"x"), ErrorCode.BLOB_REFUSED)
        assert "4 payloads of this caller" in error.message
        await store.forget(other)
        await send(store, b"there is room again", other)


async def test_callers_and_leases_do_not_meet(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await send(store)
        for place in (
            node_place("local", "lse-0000000002"),
            node_place("other", PLACE.shelf),
            place_of(Caller("user", "local", "blobs.put")),
        ):
            assert (await store.put(place, BLOB, 0, b"")).received_bytes == 0
            await refused(store.read(place, BLOB), ErrorCode.BLOB_REFUSED)
            await store.forget(place)
        assert await store.read(PLACE, BLOB) == DATA
        await store.forget(PLACE)
        assert files(tmp_path) == []


@pytest.mark.parametrize("shelf", ["", "..", "a/b", "a.b", "A", "x" * 41])
async def test_a_name_that_is_none_of_ours_leads_nowhere(tmp_path: Path, shelf: str) -> None:
    async with opened(tmp_path) as store:
        for place in (Place("node-local", shelf), Place(f"node-{shelf}/", "lse-0000000001"), Place("../x", "lse-1")):
            await refused(store.put(place, BLOB, 0, DATA), ErrorCode.BLOB_REFUSED)
            await refused(store.read(place, BLOB), ErrorCode.BLOB_REFUSED)
    assert files(tmp_path) == []
    assert not (tmp_path / "blobs").exists()


async def test_a_link_is_never_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(DATA)
    async with opened(tmp_path) as store:
        await store.put(PLACE, BLOB, 0, DATA[:10])
        folder = tmp_path / "blobs" / PLACE.owner
        [part] = files(tmp_path)
        (folder / part).unlink()
        (folder / part).symlink_to(secret)
        (folder / f"{PLACE.shelf}.{BLOB.sha256}").symlink_to(secret)
        await refused(store.read(PLACE, BLOB), ErrorCode.BLOB_REFUSED)
        await refused(store.put(PLACE, BLOB, 10, DATA[10:]), ErrorCode.STORE_UNAVAILABLE)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (tmp_path / "blobs" / "node-other").symlink_to(elsewhere)
        with pytest.raises(ModelForgeError):
            await store.put(node_place("other", PLACE.shelf), BLOB, 0, DATA)
        assert list(elsewhere.iterdir()) == []
        assert secret.read_bytes() == DATA


async def test_something_that_is_no_file_stops_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(PLACE, BLOB, 0, DATA[:10])
        folder = tmp_path / "blobs" / PLACE.owner
        os.mkfifo(folder / f"{PLACE.shelf}.{BLOB.sha256}")
        await refused(store.read(PLACE, BLOB), ErrorCode.BLOB_REFUSED)


async def test_a_payload_that_was_changed_on_the_disk_is_not_given(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await send(store)
        (tmp_path / "blobs" / PLACE.owner / files(tmp_path)[0]).write_bytes(DATA[:-1] + b"x")
        error = await refused(store.read(PLACE, BLOB), ErrorCode.BLOB_REFUSED)
        assert "not what was sent" in error.message


async def test_the_sweep_takes_what_nobody_touched_and_leaves_the_rest(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await send(store)
        await store.put(node_place("other", "lse-0000000002"), BLOB, 0, DATA[:10])
        fresh = await send(store, b"fresh")
        stranger = tmp_path / "blobs" / PLACE.owner / "a-note.txt"
        stranger.write_text("not ours", encoding="utf-8")
        for path in (tmp_path / "blobs").rglob("*"):
            if path.is_file() and fresh.sha256 not in path.name:
                os.utime(path, (1, 1))
        assert await store.sweep(3_600) == 2
        assert files(tmp_path) == ["a-note.txt", f"{PLACE.shelf}.{fresh.sha256}"]
        os.utime(tmp_path / "blobs" / PLACE.owner / f"{PLACE.shelf}.{fresh.sha256}", (1, 1))
        assert (await store.put(PLACE, fresh, 0, b"")).complete, "who asks for it will use it"
        assert await store.sweep(3_600) == 0


async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pass
    await refused(store.put(PLACE, BLOB, 0, DATA), ErrorCode.STORE_UNAVAILABLE)


async def test_a_folder_that_cannot_be_made_is_typed(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way", encoding="utf-8")
    async with opened(tmp_path) as store:
        await refused(store.put(PLACE, BLOB, 0, DATA), ErrorCode.STORE_UNAVAILABLE)


def test_a_full_disk_is_typed_and_the_upload_goes_on_when_there_is_room(tmp_path: Path) -> None:
    unshare, mount = shutil.which("unshare"), shutil.which("mount")
    if unshare is None or mount is None:
        pytest.skip("no unshare or mount here")
    if subprocess.run([unshare, "-Urm", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("user namespaces are not allowed here")
    script = textwrap.dedent("""
        import asyncio, sys
        from hashlib import sha256
        from pathlib import Path
        from bus.errors import ModelForgeError
        from bus.messages.artifacts import BlobRef
        from controller.blob_files import BlobLimits
        from controller.blobs import BlobStore, node_place

        async def main(folder):
            data = bytes(700_000)
            blob = BlobRef(sha256=sha256(data).hexdigest(), size_bytes=len(data))
            place = node_place("local", "lse-0000000001")
            store = BlobStore(folder / "blobs", BlobLimits(caller_bytes=2**30, caller_blobs=9, total_bytes=2**30))
            await store.put(place, blob, 0, data[:300_000])
            filler = folder / "filler"
            filler.write_bytes(bytes(500_000))
            try:
                await store.put(place, blob, 300_000, data[300_000:])
            except ModelForgeError as error:
                print(error.code)
            print((await store.put(place, blob, 0, b"")).received_bytes)
            filler.unlink()
            print((await store.put(place, blob, 300_000, data[300_000:])).complete)
            print(await store.read(place, blob) == data)
            store.close()
        asyncio.run(main(Path(sys.argv[1])))
    """)
    folder = tmp_path / "small"
    folder.mkdir()
    shell = f'"{mount}" -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    command = [unshare, "-Urm", "sh", "-c", shell, "sh", str(folder), sys.executable, script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert done.stdout.split() == ["STORE_UNAVAILABLE", "300000", "True", "True"], done.stderr
