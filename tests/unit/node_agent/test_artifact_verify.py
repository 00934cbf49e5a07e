"""Digests and the comparison with the approved manifest, on real files."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import Manifest
from node_agent.artifact_hash import BLOCK_BYTES, Watch, hash_files
from node_agent.artifact_root import ArtifactRoot
from node_agent.artifact_verify import still_the_same, verify_manifest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = tmp_path / "artifacts" / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "model.safetensors").write_bytes(os.urandom(3 * BLOCK_BYTES + 7))
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "empty").touch()
    (model / "1_Pooling" / "config.json").write_text("{}")
    return tmp_path / "artifacts"


def manifest_of(root: Path, watch: Watch | None = None) -> Manifest:
    with ArtifactRoot(root) as artifacts:
        return hash_files(artifacts, "model", artifacts.files("model", max_files=100), watch or Watch())


@pytest.mark.req("A3")
def test_the_manifest_holds_the_digest_of_every_file(root: Path) -> None:
    manifest = manifest_of(root)
    assert [entry.path for entry in manifest.files] == [
        "1_Pooling/config.json",
        "config.json",
        "empty",
        "model.safetensors",
    ]
    for entry in manifest.files:
        data = (root / "model" / entry.path).read_bytes()
        assert (entry.size_bytes, entry.sha256) == (len(data), hashlib.sha256(data).hexdigest())


class Counting(Watch):
    """Calls `act` at the check with this number; a file is checked once when it is opened and at every block."""

    def __init__(self, number: int, act: Callable[[], None], threads: int = 1) -> None:
        super().__init__(threads)
        self.checks = 0
        self._number, self._act = number, act

    def check(self) -> None:
        self.checks += 1
        if self.checks == self._number:
            self._act()
        super().check()


def test_a_cancelled_read_ends_at_the_next_block(root: Path) -> None:
    whole = Counting(0, lambda: None)
    manifest_of(root, whole)
    watch = Counting(whole.checks - 2, lambda: Watch.cancel(watch))
    with pytest.raises(ModelForgeError) as caught:
        manifest_of(root, watch)
    assert caught.value.code is ErrorCode.CANCELLED
    assert watch.checks == whole.checks - 2


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def rewrite_and_set_the_clock_back(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"another beginning")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


@pytest.mark.req("A3")
@pytest.mark.parametrize("change", [append, rewrite_and_set_the_clock_back, replace, Path.unlink])
def test_a_file_that_changes_while_it_is_read_is_noticed(root: Path, change: Callable[[Path], None]) -> None:
    target = root / "model" / "model.safetensors"
    # The largest file is the first one; one of its blocks was read, and others are still to come.
    with pytest.raises(ModelForgeError) as caught:
        manifest_of(root, Counting(3, lambda: change(target)))
    assert caught.value.code is ErrorCode.ARTIFACT_CHANGED
    assert caught.value.context["file"] == "model.safetensors"


@pytest.mark.req("P5")
def test_the_approved_folder_passes(root: Path) -> None:
    listing = verify_manifest(root, "model", manifest_of(root), Watch())
    assert len(listing.members) == 4
    assert [folder.path for folder in listing.folders] == [".", "1_Pooling"]
    still_the_same(root, "model", listing)


def flip_a_byte(root: Path) -> None:
    path = root / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def instead(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "contents": (flip_a_byte, "model.safetensors"),
    "truncated": (lambda root: (root / "model" / "model.safetensors").write_bytes(b"short"), "model.safetensors"),
    "missing": (lambda root: (root / "model" / "config.json").unlink(), "config.json"),
    "extra": (lambda root: (root / "model" / "added.py").write_text("import os"), "added.py"),
    "renamed": (lambda root: (root / "model" / "empty").rename(root / "model" / "vide"), "empty"),
    "a folder in its place": (lambda root: instead(root / "model" / "empty", Path.mkdir), "empty"),
    "a fifo in its place": (lambda root: instead(root / "model" / "empty", os.mkfifo), "empty"),
    "folder gone": (lambda root: (root / "model").rename(root / "moved"), "model"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.req("P5")
def test_a_folder_that_differs_is_refused_and_the_file_named(root: Path, name: str) -> None:
    manifest = manifest_of(root)
    change, file = CHANGES[name]
    change(root)
    with pytest.raises(ModelForgeError) as caught:
        verify_manifest(root, "model", manifest, Watch())
    assert caught.value.code is ErrorCode.ARTIFACT_CHANGED
    assert caught.value.context["file"] == file
    assert str(root) not in str(caught.value)


def test_an_empty_folder_more_or_less_is_the_same_set(root: Path) -> None:
    manifest = manifest_of(root)
    for number in range(100):
        (root / "model" / f"empty-{number}").mkdir()
    assert len(verify_manifest(root, "model", manifest, Watch()).members) == 4


@pytest.mark.parametrize("change", [append, rewrite_and_set_the_clock_back, replace, Path.unlink])
def test_a_change_after_the_verification_is_noticed(root: Path, change: Callable[[Path], None]) -> None:
    listing = verify_manifest(root, "model", manifest_of(root), Watch())
    change(root / "model" / "model.safetensors")
    with pytest.raises(ModelForgeError) as caught:
        still_the_same(root, "model", listing)
    assert caught.value.code is ErrorCode.ARTIFACT_CHANGED


def swap_and_swap_back(folder: Path) -> None:
    """Another folder in its place for a moment; not one file of it is touched."""
    away = folder.with_name("away")
    folder.rename(away)
    shutil.copytree(away, folder)
    folder.rename(folder.with_name("evil"))
    away.rename(folder)


@pytest.mark.parametrize(("moved", "named"), [("org/model", "."), ("org/model/1_Pooling", "."), ("org", "..")])
@pytest.mark.req("P5")
def test_a_folder_that_was_away_for_a_moment_is_noticed(root: Path, moved: str, named: str) -> None:
    """A load in that moment would read bytes that nobody approved; moving a folder changes no file's own times."""
    manifest = manifest_of(root)
    (root / "org").mkdir()
    (root / "model").rename(root / "org" / "model")
    files = {path: path.stat().st_ctime_ns for path in (root / "org" / "model").rglob("*") if path.is_file()}
    listing = verify_manifest(root, "org/model", manifest, Watch())
    changed_ns = (root / moved).stat().st_ctime_ns
    deadline_s = time.monotonic() + 5
    # Again until the clock of the file system, which ticks in milliseconds, has moved.
    while time.monotonic() < deadline_s:
        swap_and_swap_back(root / moved)
        shutil.rmtree((root / moved).with_name("evil"))
        if (root / moved).stat().st_ctime_ns != changed_ns:
            break
    assert {path: path.stat().st_ctime_ns for path in files} == files
    with pytest.raises(ModelForgeError) as caught:
        still_the_same(root, "org/model", listing)
    assert caught.value.code is ErrorCode.ARTIFACT_CHANGED
    assert caught.value.context["file"] == named


@pytest.mark.req("P5")
def test_a_neighbour_of_the_set_may_come_and_go(root: Path) -> None:
    listing = verify_manifest(root, "model", manifest_of(root), Watch())
    (root / "another model").mkdir()
    still_the_same(root, "model", listing)
