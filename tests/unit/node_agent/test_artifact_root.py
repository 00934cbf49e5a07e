"""Path rules of the artifact root, on real folders."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from node_agent.artifact_root import MAX_DEPTH, ArtifactRoot, check_relative

pytestmark = pytest.mark.req("P5")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts"
    (folder / "model" / "1_Pooling").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return folder


def paths(root: Path, folder: str = "model", max_files: int = 100) -> list[str]:
    with ArtifactRoot(root) as artifacts:
        return [member.path for member in artifacts.files(folder, max_files=max_files)]


def refusal(root: Path, folder: str = "model", max_files: int = 100) -> ModelForgeError:
    with pytest.raises(ModelForgeError) as caught:
        paths(root, folder, max_files)
    return caught.value


def test_every_file_is_listed_in_path_order(root: Path) -> None:
    (root / "model" / ".hidden").write_text("x")
    assert paths(root) == [".hidden", "1_Pooling/config.json", "config.json"]
    assert paths(root, "./model//") == paths(root, "model")
    assert paths(root, ".") == ["model/" + path for path in paths(root)]


@pytest.mark.parametrize("path", ["/etc", "../outside", "model/../../outside", "model/..", "..", "/"])
@pytest.mark.req("B4")
def test_a_path_that_leads_out_is_refused(root: Path, path: str) -> None:
    assert refusal(root, path).code is ErrorCode.PATH_OUTSIDE_ROOT


@pytest.mark.parametrize("path", ["nowhere", "model/config.json/x", "a\0b", "x" * 2_000, "mo\ndel", "mo\x1b[2Jdel"])
def test_a_path_where_nothing_can_be_is_not_found(root: Path, path: str) -> None:
    error = refusal(root, path)
    assert error.code is ErrorCode.PATH_NOT_FOUND
    assert "\x1b" not in error.message + "".join(error.context.values())


def test_a_file_is_not_a_folder(root: Path) -> None:
    assert refusal(root, "model/config.json").code is ErrorCode.PATH_NOT_A_FOLDER


def test_a_folder_without_files_is_empty(root: Path) -> None:
    (root / "empty" / "below").mkdir(parents=True)
    assert refusal(root, "empty").code is ErrorCode.ARTIFACT_EMPTY


def test_links_inside_the_root_are_followed(root: Path) -> None:
    (root / "blobs").mkdir()
    (root / "blobs" / "abc").write_text("weights")
    (root / "model" / "model.safetensors").symlink_to("../blobs/abc")
    (root / "model" / "absolute").symlink_to(root / "blobs" / "abc")
    (root / "model" / "folder").symlink_to("../blobs")
    (root / "alias").symlink_to("model")
    expected = ["1_Pooling/config.json", "absolute", "config.json", "folder/abc", "model.safetensors"]
    assert paths(root) == expected
    assert paths(root, "alias") == expected


def test_a_root_that_is_itself_a_link_is_no_escape(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert paths(tmp_path / "link") == paths(root)


@pytest.mark.parametrize("target", ["../../outside/secret", "../../outside", "/etc/hostname", "/", "../.."])
@pytest.mark.req("B4")
def test_a_link_that_leads_out_is_refused(root: Path, target: str) -> None:
    (root / "model" / "sub").symlink_to(target)
    error = refusal(root)
    assert error.code is ErrorCode.PATH_OUTSIDE_ROOT
    assert error.context["file"] == "sub"


def test_a_sibling_with_the_roots_name_as_prefix_is_outside(root: Path) -> None:
    sibling = root.with_name(root.name + "-2")
    sibling.mkdir()
    (sibling / "file").write_text("x")
    (root / "model" / "sub").symlink_to(sibling / "file")
    assert refusal(root).code is ErrorCode.PATH_OUTSIDE_ROOT


def test_a_folder_that_is_a_link_out_is_refused(root: Path) -> None:
    (root / "out").symlink_to("../outside")
    assert refusal(root, "out").code is ErrorCode.PATH_OUTSIDE_ROOT


def test_link_loops_are_typed(root: Path) -> None:
    (root / "model" / "a").symlink_to("b")
    (root / "model" / "b").symlink_to("a")
    assert refusal(root).code is ErrorCode.ARTIFACT_UNSUPPORTED_FILE


def test_a_link_to_a_folder_above_is_typed(root: Path) -> None:
    (root / "model" / "1_Pooling" / "up").symlink_to("..")
    error = refusal(root)
    assert error.code is ErrorCode.ARTIFACT_UNSUPPORTED_FILE
    assert error.context["file"] == "1_Pooling/up"


def test_a_dangling_link_is_typed_and_named(root: Path) -> None:
    (root / "model" / "model.safetensors").symlink_to("../blobs/gone")
    error = refusal(root)
    assert error.code is ErrorCode.ARTIFACT_UNREADABLE
    assert error.context["file"] == "model.safetensors"


def test_a_fifo_is_refused_without_waiting_for_a_writer(root: Path) -> None:
    os.mkfifo(root / "model" / "pipe")
    error = refusal(root)
    assert (error.code, error.context["type"]) == (ErrorCode.ARTIFACT_UNSUPPORTED_FILE, "FIFO")


def test_a_socket_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "model")  # the address of a Unix socket has room for a short path only
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        error = refusal(root)
    assert (error.code, error.context["type"]) == (ErrorCode.ARTIFACT_UNSUPPORTED_FILE, "socket")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device file")
def test_a_device_is_refused(root: Path) -> None:
    os.mknod(root / "model" / "null", 0o600 | 0o020000, os.makedev(1, 3))
    assert refusal(root).context["type"] == "character device"


@pytest.mark.parametrize(
    "name", [b"new\nline", b"esc\x1b[2Jape", b"tab\t", b"\xff\xfe", "\u202egnp.exe".encode(), "mod\u200bel".encode()]
)
def test_a_name_that_cannot_be_shown_is_refused_in_clean_words(root: Path, name: bytes) -> None:
    (Path(os.fsdecode(os.fsencode(root / "model") + b"/" + name))).write_text("x")
    error = refusal(root)
    assert error.code is ErrorCode.ARTIFACT_UNSUPPORTED_FILE
    assert str(error).encode().decode().isprintable()


def test_too_many_files_are_refused(root: Path) -> None:
    assert len(paths(root, max_files=2)) == 2
    assert refusal(root, max_files=1).code is ErrorCode.SCAN_TOO_LARGE


def test_a_bottomless_folder_is_refused(root: Path) -> None:
    (root / "model" / "/".join(["d"] * (MAX_DEPTH + 1))).mkdir(parents=True)
    assert refusal(root).code is ErrorCode.SCAN_TOO_LARGE


def test_a_file_that_was_swapped_after_the_listing_is_noticed(root: Path) -> None:
    with ArtifactRoot(root) as artifacts:
        (member,) = artifacts.files("model/1_Pooling", max_files=9)
        (root / "model" / "1_Pooling" / "config.json").unlink()
        (root / "model" / "1_Pooling" / "config.json").symlink_to(root / "model" / "config.json")
        with pytest.raises(ModelForgeError) as caught, artifacts.open_member("model/1_Pooling", member):
            pass
    assert caught.value.code is ErrorCode.ARTIFACT_CHANGED


def test_a_link_out_that_took_a_files_place_is_not_read(root: Path, tmp_path: Path) -> None:
    with ArtifactRoot(root) as artifacts:
        (member,) = artifacts.files("model/1_Pooling", max_files=9)
        (root / "model" / "1_Pooling" / "config.json").unlink()
        (root / "model" / "1_Pooling" / "config.json").symlink_to(tmp_path / "outside" / "secret")
        with pytest.raises(ModelForgeError) as caught, artifacts.open_member("model/1_Pooling", member):
            pass
    assert caught.value.code is ErrorCode.PATH_OUTSIDE_ROOT


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may enter; pytest's own are closed to everybody else."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_what_may_not_be_read_is_typed_and_named(open_folder: Path, closed: str) -> None:
    (open_folder / "model" / "folder").mkdir(parents=True)
    (open_folder / "model" / "file").write_text("x")
    (open_folder / "model" / closed).chmod(0)
    code = (
        "import os, sys; from pathlib import Path\n"
        "from bus.errors import ModelForgeError\n"
        "from node_agent.artifact_hash import Watch, hash_files\n"
        "from node_agent.artifact_root import ArtifactRoot\n"
        # Permission bits do not stop root: what follows is done as nobody.
        "if os.geteuid() == 0: os.setgroups([]); os.setuid(65_534)\n"
        "try:\n"
        "    root = ArtifactRoot(Path(sys.argv[1]))\n"
        "    hash_files(root, 'model', root.files('model', max_files=9), Watch())\n"
        "except ModelForgeError as error: print(error.code, error.context['file'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(open_folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.split() == ["ARTIFACT_UNREADABLE", closed]


def test_a_relative_path_is_made_plain() -> None:
    assert check_relative("a/./b//c/") == "a/b/c"
    assert check_relative("") == "."


def test_a_file_that_vanishes_while_its_folder_is_listed_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    class Vanishing:
        """A folder whose entries are gone as soon as they were named."""

        def __init__(self, descriptor: int) -> None:
            self._entries = listed(descriptor)

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            for entry in self._entries.__enter__():
                if entry.is_file():
                    (root / "model" / entry.name).unlink()
                yield entry

        def __exit__(self, *_: object) -> None:
            self._entries.close()

    monkeypatch.setattr(os, "scandir", Vanishing)
    error = refusal(root)
    assert (error.code, error.context["file"]) == (ErrorCode.ARTIFACT_UNREADABLE, "config.json")
