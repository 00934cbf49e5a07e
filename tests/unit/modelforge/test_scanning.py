"""A scan from the operator's side: the list that it is held against, the bar, and the upload that survives a restart."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bus import verbs
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.artifacts import ArtifactSet, BlobRef, Quarantine, ScanProgress, ScanView
from bus.messages.blobs import MAX_BLOB_BYTES, MAX_CHUNK_BYTES, BlobPut, BlobState
from bus.states import JobState
from modelforge.cli import artifact, boundary, main, uploads
from modelforge.cli import patience as patience_module
from modelforge.cli.output import Progress
from modelforge.cli.scanning import Gauge, left_out, read_expected, scan_card, scan_error, scan_record, send_expected
from modelforge.cli.uploads import upload
from modelforge.expectation import Expected, read_sums

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEX = "cd" * 32


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "RETRY_S", 0.001)


class Store:
    """A controller's end of an upload.

    `faults`: what the next calls do instead: a code is raised, a number forgets everything beyond that byte.
    """

    def __init__(
        self, *, held: bytes = b"", faults: tuple[ErrorCode | int | None, ...] = (), deaf: bool = False
    ) -> None:
        self.held, self.faults, self.deaf = held, list(faults), deaf
        self.sent_bytes = 0

    async def call(self, verb: object, request: BlobPut) -> BlobState:
        fault = self.faults.pop(0) if self.faults else None
        self.sent_bytes += len(request.data)
        if isinstance(fault, ErrorCode):
            raise ModelForgeError(fault, "as it is")
        if isinstance(fault, int):
            self.held = self.held[:fault]
        elif not self.deaf and request.offset == len(self.held):
            assert len(request.data) <= MAX_CHUNK_BYTES
            self.held += request.data
        complete = hashlib.sha256(self.held).hexdigest() == request.blob.sha256
        return BlobState(received_bytes=len(self.held), complete=complete)


def silent() -> Progress:
    return Progress(io.StringIO(), animate=False)


DATA = bytes(range(256)) * 4 * 1_024  # 1 MiB, three chunks


@pytest.mark.parametrize(
    "store",
    [
        Store(),
        Store(held=DATA[: MAX_CHUNK_BYTES + 5]),
        Store(held=DATA),
        Store(faults=(None, ErrorCode.NO_CONTROLLER, ErrorCode.REQUEST_TIMEOUT)),
        Store(faults=(None, None, 0)),
    ],
    ids=["new", "begun", "there already", "controller away", "forgotten"],
)
async def test_an_upload_goes_on_from_where_the_controller_is(store: Store) -> None:
    operator: Any = store
    blob = await upload(operator, DATA, silent())
    assert store.held == DATA
    assert blob == BlobRef(sha256=hashlib.sha256(DATA).hexdigest(), size_bytes=len(DATA))


async def test_what_is_there_is_not_sent_again() -> None:
    store: Any = Store(held=DATA[:-10])
    await upload(store, DATA, silent())
    assert store.sent_bytes == 10


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (DATA, ErrorCode.BLOB_REFUSED),
        (b"", ErrorCode.INVALID_ARGUMENT),
        (b"x" * (MAX_BLOB_BYTES + 1), ErrorCode.INVALID_ARGUMENT),
    ],
    ids=["deaf", "empty", "too large"],
)
async def test_an_upload_that_cannot_end_ends_typed(data: bytes, code: ErrorCode) -> None:
    store: Any = Store(deaf=True)
    with pytest.raises(ModelForgeError) as caught:
        await upload(store, data, silent())
    assert caught.value.code is code
    assert uploads.RESTARTS_MAX < 10


async def test_a_list_is_sent_in_its_canonical_form(tmp_path: Path) -> None:
    file = tmp_path / "SHA256SUMS"
    file.write_text(f"{HEX} *b\n{HEX}  a\n")
    expected = read_expected(file, None, None)
    assert expected is not None
    store: Any = Store()
    sent = await send_expected(store, expected, silent())
    assert store.held == expected.blob
    assert (sent.kind, sent.source_sha256, sent.key) == (
        "sha256sum",
        hashlib.sha256(file.read_bytes()).hexdigest(),
        None,
    )
    assert sent.blob.sha256 == hashlib.sha256(expected.blob).hexdigest()
    assert expected == read_sums(file)
    assert read_expected(None, None, None) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--expect", "SUMS", "--expect-signature", "s", "--public-key", "k"],
        ["--expect-signature", "s"],
        ["--public-key", "k"],
        ["--expect", "missing"],
        ["--expect", "BAD"],
    ],
)
def test_wrong_expectations_are_refused_before_anything_is_asked(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SUMS").write_text(f"{HEX}  a\n")
    (tmp_path / "BAD").write_text("no digest here\n")
    assert boundary.run(main.call, ["artifact", "scan", "m", *arguments, "--json"]) == 2
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["code"] in {"INVALID_ARGUMENT", "CONFIG_UNREADABLE"}
    assert data["hint"]


def view(**changes: Any) -> ScanView:
    fields: dict[str, Any] = {"id": "scn-1", "node": "local", "path": "m", "state": JobState.LEASED, "queued_at": AT}
    return ScanView(**{**fields, **changes})


def test_the_gauge_tells_states_and_steps_each_once() -> None:
    stream = io.StringIO()
    gauge = Gauge(Progress(stream, animate=False))
    gauge.tell(view(state=JobState.QUEUED))
    gauge.tell(view())
    gauge.tell(view(progress=ScanProgress(step="listing", files_done=3)))
    for done in (0, 2**20, 2**20):
        gauge.tell(
            view(
                progress=ScanProgress(
                    step="hashing", files_done=1, files_total=2, bytes_done=done, bytes_total=2 * 2**20
                )
            )
        )
    gauge.tell(view(state=JobState.SUCCEEDED, progress=ScanProgress(step="reporting")))
    assert stream.getvalue().splitlines() == [
        "scan scn-1 of local:m queued",
        "scan scn-1 of local:m running on local",
        "listing",
        "hashing",
        "hashing: 50% 1/2 files 1.0 MiB/2.0 MiB",
        "scan scn-1 of local:m succeeded",
    ]


def test_an_absolute_path_is_refused_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run(main.call, ["artifact", "scan", "/srv/models/a b"]) == 2
    err = capsys.readouterr().err
    assert "PATH_OUTSIDE_ROOT: '/srv/models/a b' is an absolute path" in err
    assert "must be relative to the node's artifact root" in err
    assert "`modelforge artifact scan 'a b'`" in err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted; scan scn-1 goes on"),
        (ModelForgeError(ErrorCode.WAIT_TIMEOUT, "not ended"), 124, "not ended"),
    ],
)
def test_a_wait_that_ends_early_says_what_goes_on_and_how_to_look(
    error: BaseException,
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Answering:
        async def call(self, *_: object) -> object:
            return view(state=JobState.QUEUED)

    def dial(_: object, work: Any) -> object:
        return asyncio.run(work(Answering()))

    limits: list[float | None] = []

    async def follow(_: object, __: object, ___: object, timeout_s: float | None) -> object:
        limits.append(timeout_s)
        raise error

    monkeypatch.setattr(artifact, "with_operator", dial)
    monkeypatch.setattr(artifact, "follow_scan", follow)
    state = tmp_path / "st"
    assert boundary.run(main.call, ["artifact", "scan", "m", "--node", "n", "--state", str(state)]) == code
    err = capsys.readouterr().err
    assert words in err
    assert f"`modelforge artifact scan-show scn-1 --state {state}`" in err
    assert limits == [None]  # as long as the scan takes, unless somebody says otherwise


def test_the_result_says_how_much_was_found_and_what_is_held() -> None:
    held = Quarantine(
        id="q",
        sha256=HEX,
        set_digest=f"sha256:{HEX}",
        path="x.bin",
        reason="code",
        quarantined_by="c",
        quarantined_at=AT,
    )
    found = ArtifactSet(digest=f"sha256:{HEX}", file_count=3, size_bytes=2048, created_at=AT, quarantined=(held,))
    ended = view(state=JobState.SUCCEEDED, set_digest=found.digest, expected_sha256=HEX)
    card = scan_card(ended, found)
    assert "3 files, 2.0 KiB" in card
    assert "x.bin: code" in card
    assert "equals the list cdcdcdcdcdcd" in card
    record = scan_record(ended, found)
    assert (record["file_count"], record["size_bytes"], record["set_digest"]) == (3, 2048, found.digest)
    assert "file_count" not in scan_record(view(), None)
    assert "holds" not in scan_card(view(), None)


def test_a_scan_that_goes_on_says_how_far_it_is() -> None:
    at = ScanProgress(step="hashing", files_done=1, files_total=2, bytes_done=2**20, bytes_total=2 * 2**20)
    assert "hashing: 1 of 2 files, 1.0 MiB of 2.0 MiB" in scan_card(view(progress=at), None)
    assert "running on local" in scan_card(view(progress=at), None)
    assert "hashing" not in scan_card(view(state=JobState.FAILED, progress=at), None)


def test_a_mismatch_names_what_the_signature_leaves_out() -> None:
    failure = Failure(code="EXPECTED_MANIFEST_MISMATCH", message="surplus: .gitattributes", context={"surplus": "1"})
    signed = Expected(kind="openssf_signature", entries={"a": HEX}, source_sha256=HEX, ignored=(".gitattributes",))
    error = scan_error(failure, signed)
    assert (error.code, error.context) == (ErrorCode.EXPECTED_MANIFEST_MISMATCH, {"surplus": "1"})
    assert "leaves out .gitattributes" in error.hint
    assert "leaves out" not in scan_error(failure, None).hint
    hostile = Expected(kind="openssf_signature", entries={"a": HEX}, source_sha256=HEX, ignored=("\x1b[2J",) * 9)
    assert left_out(hostile).endswith(" and 4 more")
    assert "\x1b" not in scan_error(failure, hostile).hint
    assert "leaves out" not in scan_error(Failure(code="NODE_FAULT", message="m"), signed).hint


@pytest.mark.parametrize("fresh", [True, False])
def test_what_was_asked_for_is_what_is_sent(
    fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "SHA256SUMS"
    file.write_text(f"{HEX}  a\n")
    store, requests = Store(), []

    class Answering:
        async def call(self, verb: verbs.Verb[Any, Any], request: Any) -> object:
            if verb is verbs.BLOBS_PUT:
                return await store.call(verb, request)
            requests.append(request)
            return view(state=JobState.QUEUED)

    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr(artifact, "with_operator", lambda _, work: asyncio.run(work(Answering())))
    arguments = ["m", "--node", "n", "--no-wait", "--expect", str(file), "--request-id", "r"]
    assert boundary.run(main.call, ["artifact", "scan", *arguments, *(["--fresh"] if fresh else [])]) == 0
    (request,) = requests
    assert (request.node, request.path, request.request_id, request.fresh) == ("n", "m", "r", fresh)
    assert request.expected.blob.sha256 == hashlib.sha256(store.held).hexdigest()
    assert "next: modelforge artifact scan-show scn-1" in capsys.readouterr().err
