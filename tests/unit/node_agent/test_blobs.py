"""Large payloads in chunks: lost ones, repeated ones, a controller that was started again, one that makes no sense."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bus import verbs
from bus.digest import canonical_json, sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ClaimGranted
from bus.messages.artifacts import BlobRef
from bus.messages.blobs import MAX_BLOB_BYTES, MAX_CHUNK_BYTES, BlobChunk, BlobState, NodeBlobGet, NodeBlobPut
from bus.messages.jobs import ProbeJob
from node_agent import blobs
from node_agent.blobs import MAX_FAILURES, fetch_manifest, put
from node_agent.claims import Lease
from node_agent.controller_api import Boot
from tests.support.agent_jobs import manifest_of, probe_job


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(blobs, "LONGEST_PAUSE_S", 0.002)


def lease() -> Lease:
    granted = ClaimGranted(lease_id="lease", attempt=1, token="t0ken", ttl_s=60.0)
    return Lease(granted, "job", "$JS.ACK.x", asyncio.get_running_loop().time())


class Store:
    """The controller's side; `trouble` is asked before each request, and may raise or answer itself."""

    def __init__(self, trouble: Callable[[int, Any], Any] = lambda _number, _request: None) -> None:
        self.boot = Boot("local", "boot")
        self.data = b""
        self.manifest = b""
        self.sent_bytes = 0
        self.requests = 0
        self._trouble = trouble

    async def call(self, verb: Any, request: Any, *, timeout_s: float) -> Any:
        assert timeout_s > 0
        assert (request.boot_id, request.lease_id, request.token) == ("boot", "lease", "t0ken")
        self.requests += 1
        answer = self._trouble(self.requests, request)
        if answer is not None:
            return answer
        return self.put(request) if verb is verbs.BLOB_PUT else self.get(request)

    def put(self, request: NodeBlobPut) -> BlobState:
        self.sent_bytes += len(request.data)
        if request.offset == len(self.data):
            self.data += request.data
        complete = len(self.data) == request.blob.size_bytes and sha256_hex(self.data) == request.blob.sha256
        return BlobState(received_bytes=len(self.data), complete=complete)

    def get(self, request: NodeBlobGet) -> BlobChunk:
        return BlobChunk(data=self.manifest[request.offset : request.offset + 50], total_bytes=len(self.manifest))


def away() -> ModelForgeError:
    return ModelForgeError(ErrorCode.REQUEST_TIMEOUT, "no answer")


DATA = os.urandom(3 * MAX_CHUNK_BYTES + 7)


async def sent(store: Store, data: bytes = DATA) -> BlobRef:
    return await put(store, lease(), data)  # type: ignore[arg-type]  # all that is used of the API


@pytest.mark.parametrize("size", [1, MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 1, len(DATA)])
async def test_a_payload_arrives_whole_and_is_named_by_its_bytes(size: int) -> None:
    store = Store()
    assert await sent(store, DATA[:size]) == BlobRef(sha256=sha256_hex(DATA[:size]), size_bytes=size)
    assert store.data == DATA[:size]
    assert store.sent_bytes == size


async def test_what_is_there_already_is_not_sent_again() -> None:
    store = Store()
    store.data = DATA
    await sent(store)
    assert (store.sent_bytes, store.requests) == (0, 1)
    store.data = DATA[: MAX_CHUNK_BYTES + 5]
    await sent(store)
    assert store.data == DATA
    assert store.sent_bytes == len(DATA) - MAX_CHUNK_BYTES - 5


async def test_a_lost_chunk_or_a_lost_answer_costs_one_question() -> None:
    def trouble(number: int, request: Any) -> None:
        if number == 2:
            raise away()
        if number == 4:
            store.put(request)  # it arrived; only the answer did not
            raise away()

    store = Store(trouble)
    await sent(store)
    assert store.data == DATA


async def test_a_controller_that_forgot_everything_is_sent_everything() -> None:
    def trouble(number: int, _request: Any) -> None:
        if number == 4:
            store.data = b""
            raise away()

    store = Store(trouble)
    await sent(store)
    assert store.data == DATA


def never(_number: int, _request: Any) -> None:
    raise away()


def silent_about_chunks(_number: int, request: Any) -> Any:
    if request.data:
        raise away()


def taking_nothing(_number: int, _request: Any) -> BlobState:
    return BlobState(received_bytes=0, complete=False)


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (never, ErrorCode.REQUEST_TIMEOUT),
        (silent_about_chunks, ErrorCode.REQUEST_TIMEOUT),
        (taking_nothing, ErrorCode.BLOB_REFUSED),
    ],
)
async def test_the_tries_are_bounded(trouble: Callable[[int, Any], Any], code: ErrorCode) -> None:
    store = Store(trouble)
    with pytest.raises(ModelForgeError) as caught:
        await sent(store)
    assert caught.value.code is code
    assert store.requests <= 2 * MAX_FAILURES + 2


async def test_a_step_forward_begins_the_count_again() -> None:
    """More losses than are allowed in a row, and never two in a row."""
    data = os.urandom(MAX_CHUNK_BYTES)

    def trouble(number: int, request: Any) -> BlobState | None:
        if number % 3 == 0:
            raise away()
        if not request.data:
            return None
        # It takes a little of each chunk.
        store.data += request.data[:10_000]
        return BlobState(received_bytes=len(store.data), complete=store.data == data)

    store = Store(trouble)
    await sent(store, data)
    assert store.data == data


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (BlobState(received_bytes=len(DATA), complete=False), "do not fit"),
        (BlobState(received_bytes=len(DATA) + 1, complete=False), "do not fit"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_the_end(answer: BlobState, words: str) -> None:
    with pytest.raises(ModelForgeError) as caught:
        await sent(Store(lambda _number, _request: answer))
    assert caught.value.code is ErrorCode.BLOB_REFUSED
    assert words in caught.value.message


@pytest.mark.parametrize("size", [0, MAX_BLOB_BYTES + 1])
async def test_what_no_controller_takes_is_not_offered(size: int) -> None:
    store = Store()
    with pytest.raises(ModelForgeError) as caught:
        await sent(store, bytes(size))
    assert (caught.value.code, store.requests) == (ErrorCode.BLOB_REFUSED, 0)


async def test_a_refusal_is_not_asked_twice() -> None:
    def refuse(_number: int, _request: Any) -> None:
        raise ModelForgeError(ErrorCode.PERMISSION_DENIED, "another token")

    store = Store(refuse)
    with pytest.raises(ModelForgeError) as caught:
        await sent(store)
    assert (caught.value.code, store.requests) == (ErrorCode.PERMISSION_DENIED, 1)


async def test_nothing_is_sent_any_more_when_the_lease_is_over() -> None:
    mine = lease()
    over = ModelForgeError(ErrorCode.LEASE_FENCED, "over")

    def trouble(number: int, _request: Any) -> None:
        if number == 2:
            mine.finish(over)
            raise away()

    store = Store(trouble)
    with pytest.raises(ModelForgeError) as caught:
        await put(store, mine, DATA)  # type: ignore[arg-type]  # all that is used of the API
    assert caught.value is over
    assert store.requests == 2


# --- the manifest of a job ---------------------------------------------------------------------------------------


def job_without_manifest(root: Path, **fields: Any) -> tuple[ProbeJob, bytes]:
    (root / "model").mkdir()
    for number in range(5):
        (root / "model" / f"file{number}").write_text(str(number))
    data = canonical_json(manifest_of(root))
    return probe_job(root, **{"manifest": None, "manifest_bytes": len(data), **fields}), data


async def test_a_manifest_is_fetched_by_ranges(tmp_path: Path) -> None:
    def trouble(number: int, _request: Any) -> BlobChunk | None:
        if number == 2:
            raise away()
        return BlobChunk(data=b"", total_bytes=len(data)) if number == 4 else None

    job, data = job_without_manifest(tmp_path)
    store = Store(trouble)
    store.manifest = data
    manifest = await fetch_manifest(store, lease(), job)  # type: ignore[arg-type]  # all that is used of the API
    assert manifest == manifest_of(tmp_path)
    assert manifest.digest() == job.set_digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-1] + b"x", "the job names"),
        (lambda data: data + b"x", "the job announces"),
        (lambda data: data[:-1], "the job announces"),
    ],
)
@pytest.mark.req("P5")
async def test_another_manifest_than_the_approved_one_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    job, data = job_without_manifest(tmp_path)
    store = Store()
    store.manifest = change(data)
    with pytest.raises(ModelForgeError) as caught:
        await fetch_manifest(store, lease(), job)  # type: ignore[arg-type]  # all that is used of the API
    assert caught.value.code is ErrorCode.BLOB_REFUSED
    assert words in caught.value.message


@pytest.mark.parametrize("size", [0, MAX_BLOB_BYTES + 1])
async def test_a_manifest_without_a_sensible_length_is_not_fetched(tmp_path: Path, size: int) -> None:
    job, _ = job_without_manifest(tmp_path, manifest_bytes=size)
    store = Store()
    with pytest.raises(ModelForgeError) as caught:
        await fetch_manifest(store, lease(), job)  # type: ignore[arg-type]  # all that is used of the API
    assert (caught.value.code, store.requests) == (ErrorCode.BLOB_REFUSED, 0)


async def test_a_controller_that_sends_nothing_is_asked_a_bounded_number_of_times(tmp_path: Path) -> None:
    job, data = job_without_manifest(tmp_path)
    store = Store(lambda _number, _request: BlobChunk(data=b"", total_bytes=len(data)))
    with pytest.raises(ModelForgeError) as caught:
        await fetch_manifest(store, lease(), job)  # type: ignore[arg-type]  # all that is used of the API
    assert caught.value.code is ErrorCode.BLOB_REFUSED
    assert store.requests == MAX_FAILURES
