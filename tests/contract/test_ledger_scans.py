"""A scan's digests and evidence are of one moment: whatever changes meanwhile ends it (spec A3)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from node_agent.artifact_hash import BLOCK_BYTES, Watch, digests_of
from node_agent.artifact_root import ArtifactRoot, Member
from node_agent.artifact_scan import ScanWatch, scan_folder

SMALL, LARGE = "config.json", "model.bin"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / SMALL).write_bytes(b'{"model_type": "bert"}')
    (model / LARGE).write_bytes(os.urandom(BLOCK_BYTES + 9))
    (model / "sub" / "words.txt").write_bytes(b"words")
    return tmp_path


class At(ScanWatch):
    """Acts once, when all headers were read and the large files are about to be hashed."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def hashing(self) -> None:
        self._act()


def rewrite(path: Path) -> None:
    """Other bytes of the same number in the same file, its time set back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"[")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    """Another file with the same bytes."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rewritten": (lambda model: rewrite(model / SMALL), SMALL),
    "replaced": (lambda model: replace(model / SMALL), SMALL),
    "longer": (lambda model: append(model / SMALL), SMALL),
    "gone": (lambda model: (model / SMALL).unlink(), SMALL),
    "more": (lambda model: (model / "sub" / "late.json").write_bytes(b"{}"), "sub/late.json"),
    "renamed": (lambda model: (model / SMALL).rename(model / "z.json"), SMALL),
}


@pytest.mark.req("A3")
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_after_it_was_read_ends_the_scan_and_is_named(root: Path, change: str) -> None:
    """A small file is read once and never again: only its stamp tells that the digest is of other bytes by now."""
    act, named = CHANGES[change]
    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=10, watch=At(lambda: act(root / "model")))
    assert (caught.value.code, caught.value.context["file"]) == (ErrorCode.ARTIFACT_CHANGED, named)
    # The same folder, left alone, is what its files say.
    manifest = scan_folder(root, "model", max_files=10, watch=ScanWatch()).manifest
    files = {str(path.relative_to(root / "model")): path for path in (root / "model").rglob("*") if path.is_file()}
    assert {entry.path: entry.sha256 for entry in manifest.files} == {
        path: sha256_hex(file.read_bytes()) for path, file in files.items()
    }


class AtTheEnd(Watch):
    """Acts when the last byte of the file was hashed, before it is closed."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(threads=1)
        self._act, self._left = act, 0

    def begins(self, member: Member) -> None:
        self._left = member.stamp.size_bytes

    def advance(self, *, files: int = 0, size_bytes: int = 0) -> None:
        self._left -= size_bytes
        if size_bytes and not self._left:
            self._act()


@pytest.mark.req("A3")
@pytest.mark.parametrize("change", [rewrite, append, replace, Path.unlink])
def test_a_file_that_changes_under_its_open_descriptor_has_no_digest(
    root: Path, change: Callable[[Path], object]
) -> None:
    """All its bytes were read by then: only a look at the open file itself tells."""
    with ArtifactRoot(root) as artifacts:
        members = tuple(one for one in artifacts.files("model", max_files=10) if one.path == LARGE)
        with pytest.raises(ModelForgeError) as caught:
            digests_of(artifacts, "model", members, AtTheEnd(lambda: change(root / "model" / LARGE)))
    assert (caught.value.code, caught.value.context["file"]) == (ErrorCode.ARTIFACT_CHANGED, LARGE)


@pytest.mark.req("A3")
def test_a_large_file_left_alone_has_the_digest_of_its_bytes(root: Path) -> None:
    with ArtifactRoot(root) as artifacts:
        members = tuple(one for one in artifacts.files("model", max_files=10) if one.path == LARGE)
        found = digests_of(artifacts, "model", members, AtTheEnd(lambda: None))
    assert found == {LARGE: sha256_hex((root / "model" / LARGE).read_bytes())}
