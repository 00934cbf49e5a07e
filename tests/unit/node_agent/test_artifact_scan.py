"""A whole scan of a small folder: manifest and evidence of one and the same moment."""

from __future__ import annotations

import io
import json
import os
import struct
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from adapters.formats.evidence import EvidenceCollector
from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from node_agent import artifact_hash, artifact_scan
from node_agent.artifact_hash import BLOCK_BYTES
from node_agent.artifact_root import Member, Stamp
from node_agent.artifact_scan import ScanWatch, scan_folder
from node_agent.hash_cache import SETTLED_S

HEADER = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    header = json.dumps(HEADER).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "1_Pooling" / "config.json").write_text("{broken")
    (model / "README.md").write_text("words")
    return tmp_path


@pytest.mark.req("P1", "A3")
def test_a_scan_gives_manifest_and_evidence(root: Path) -> None:
    scanned = scan_folder(root, "model", max_files=10, watch=ScanWatch())
    assert [entry.path for entry in scanned.manifest.files] == [
        "1_Pooling/config.json",
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert scanned.evidence.documents == {"config.json": {"model_type": "bert"}}
    (weights,) = scanned.evidence.weights
    assert (weights.path, weights.parameters, weights.problem) == ("model.safetensors", 4, None)
    assert scanned.evidence.notes[0].startswith("1_Pooling/config.json: not read")


def test_the_same_folder_gives_the_same_digest(root: Path) -> None:
    first = scan_folder(root, "model", max_files=10, watch=ScanWatch(threads=1))
    second = scan_folder(root, "./model/", max_files=10, watch=ScanWatch(threads=4))
    assert first.manifest.digest() == second.manifest.digest()


@pytest.mark.req("A3")
def test_a_file_that_comes_during_the_scan_is_noticed(root: Path) -> None:
    class Meddling(ScanWatch):
        """Files are listed before the first check."""

        def check(self) -> None:
            (root / "model" / "late.json").write_text("{}")

    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=10, watch=Meddling())
    assert (caught.value.code, caught.value.context["file"]) == (ErrorCode.ARTIFACT_CHANGED, "late.json")


def test_a_set_whose_manifest_cannot_be_sent_is_refused_before_a_file_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing for hours, for a report that cannot be sent, says the same in the end."""

    class Untouched(ScanWatch):
        def begins(self, member: Member) -> None:
            pytest.fail(f"{member.path} was read")

    monkeypatch.setattr(artifact_scan, "MAX_BLOB_BYTES", 300)
    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=10, watch=Untouched())
    assert caught.value.code is ErrorCode.SCAN_TOO_LARGE
    assert caught.value.message.startswith("4 files make a manifest of")
    monkeypatch.setattr(artifact_scan, "MAX_BLOB_BYTES", 600)
    scan_folder(root, "model", max_files=10, watch=ScanWatch())


class Counted(ScanWatch):
    """How often each file was begun, and how many bytes were hashed."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.hashed_bytes = 0

    def begins(self, member: Member) -> None:
        self.begun.append(member.path)

    def advance(self, *, files: int = 0, size_bytes: int = 0) -> None:
        self.hashed_bytes += size_bytes


class Remembering(ScanWatch):
    """What may be remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.digests: dict[Stamp, str] = {}

    def remember(self, stamp: Stamp, sha256: str) -> None:
        self.digests[stamp] = sha256


def test_every_byte_is_hashed_once_and_a_small_file_is_opened_once(root: Path) -> None:
    large = os.urandom(2 * BLOCK_BYTES + 1)
    (root / "model" / "large.bin").write_bytes(large)
    (root / "model" / "edge.bin").write_bytes(large[:BLOCK_BYTES])
    (root / "model" / "none.bin").touch()
    watch = Counted()
    scanned = scan_folder(root, "model", max_files=10, watch=watch)
    files = {path: path.read_bytes() for path in (root / "model").rglob("*") if path.is_file()}
    assert {entry.path: entry.sha256 for entry in scanned.manifest.files} == {
        str(path.relative_to(root / "model")): sha256_hex(data) for path, data in files.items()
    }
    assert watch.hashed_bytes == sum(map(len, files.values()))
    assert sorted(watch.begun) == sorted([*(str(path.relative_to(root / "model")) for path in files), "large.bin"])
    assert (scanned.files_hashed, scanned.files_cached) == (7, 0)


def test_a_known_digest_is_not_computed_again_and_its_headers_are_read_all_the_same(root: Path) -> None:
    path = root / "model" / "model.safetensors"
    watch = Counted()
    known = {Stamp.of(path.stat()): "ab" * 32}
    scanned = scan_folder(root, "model", max_files=10, watch=watch, known=known)
    assert {entry.path: entry.sha256 for entry in scanned.manifest.files}["model.safetensors"] == "ab" * 32
    assert watch.hashed_bytes == sum(len(one.read_bytes()) for one in (root / "model").rglob("*.*") if one != path)
    assert scanned.evidence.weights[0].parameters == 4
    assert (scanned.files_hashed, scanned.files_cached) == (3, 1)
    os.utime(path, ns=(0, 0))
    again = scan_folder(root, "model", max_files=10, watch=ScanWatch(), known=known)
    assert again.files_cached == 0
    assert {entry.path: entry.sha256 for entry in again.manifest.files}["model.safetensors"] == sha256_hex(
        path.read_bytes()
    )


def test_only_what_was_settled_before_the_scan_is_to_be_remembered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write in the same tick of the file system's clock leaves no trace in a file's times."""
    newest_ns = max(path.stat().st_ctime_ns for path in (root / "model").rglob("*.*"))
    whole = {path.stat().st_ino for path in (root / "model").rglob("*") if path.is_file()}

    def remembered_at(at_ns: int) -> dict[Stamp, str]:
        monkeypatch.setattr("time.time_ns", lambda: at_ns)
        watch = Remembering()
        manifest = scan_folder(root, "model", max_files=10, watch=watch).manifest
        assert set(watch.digests.values()) <= {entry.sha256 for entry in manifest.files}
        return watch.digests

    settled_ns = newest_ns + int(SETTLED_S * 1e9)
    assert {stamp.inode for stamp in remembered_at(settled_ns)} == whole
    assert len(remembered_at(settled_ns - 1)) < len(whole)
    assert remembered_at(newest_ns - 1) == {}


def test_a_small_file_that_changes_while_it_is_read_is_not_remembered(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = artifact_hash.read_into

    def meddling(fd: int, member: Member, buffer: memoryview) -> int:
        count = plain(fd, member, buffer)
        if member.path == "config.json":
            (root / "model" / "config.json").write_text('{"model_type": "t5!!"}')
        return count

    later_ns = time.time_ns() + int(2 * SETTLED_S * 1e9)
    monkeypatch.setattr("time.time_ns", lambda: later_ns)
    monkeypatch.setattr(artifact_scan, "read_into", meddling)
    watch = Remembering()
    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=10, watch=watch)
    assert (caught.value.code, caught.value.context["file"]) == (ErrorCode.ARTIFACT_CHANGED, "config.json")
    assert len(watch.digests) == 2, "only the two files before it"


@pytest.mark.parametrize("error", [MemoryError(), RecursionError()])
def test_a_file_whose_headers_exhaust_their_reader_is_named(root: Path, error: BaseException) -> None:
    class Exhausted(EvidenceCollector):
        def add(self, path: str, file: BinaryIO, size_bytes: int) -> None:
            if path == "config.json":
                raise error

    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=10, watch=ScanWatch(), collector=Exhausted)
    assert (caught.value.code, caught.value.context["file"]) == (ErrorCode.SCAN_LIMIT_EXCEEDED, "config.json")


def test_what_a_collector_sees_is_the_file(root: Path) -> None:
    (root / "model" / "large.bin").write_bytes(b"x" * (BLOCK_BYTES + 1))
    seen: dict[str, Any] = {}

    class Seeing(EvidenceCollector):
        def add(self, path: str, file: BinaryIO, size_bytes: int) -> None:
            assert file.seekable()
            seen[path] = (file.tell(), file.seek(0, io.SEEK_END), size_bytes)

    scan_folder(root, "model", max_files=10, watch=ScanWatch(), collector=Seeing)
    assert seen == {
        str(path.relative_to(root / "model")): (0, path.stat().st_size, path.stat().st_size)
        for path in (root / "model").rglob("*")
        if path.is_file()
    }


def test_a_thread_that_fails_ends_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (root / "model" / f"large-{number:02}.bin").write_bytes(b"x" * (BLOCK_BYTES + 1))
    watch = Counted()

    def broken(*_: object) -> int:
        raise ModelForgeError(ErrorCode.ARTIFACT_UNREADABLE, "the disk is broken")

    # The headers are read by another name of it.
    monkeypatch.setattr(artifact_hash, "read_into", broken)
    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=50, watch=watch)
    assert caught.value.code is ErrorCode.ARTIFACT_UNREADABLE
    # Each of the two threads had one file in its hands, and took no other.
    assert len([path for path in watch.begun if path.startswith("large")]) <= 20 + 2
