"""Folders that are made to hurt whoever scans them: every one ends typed, in bounded time and memory."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bus.errors import ErrorCode
from bus.messages.artifacts import ScanProgress
from node_agent.scan_host import run_scan
from tests.support.agent_jobs import scan_job
from tests.support.agents import scan_place
from tests.support.scans import evidence_of, manifest_of, reader_that, refusal, scan

pytestmark = pytest.mark.req("P1")
MIB = 1024 * 1024
UNSUPPORTED = ErrorCode.ARTIFACT_UNSUPPORTED_FILE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = tmp_path / "artifacts" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"model_type": "bert"}')
    return tmp_path / "artifacts"


def bind_socket(path: Path) -> None:
    """A name of at most 107 bytes is all that a socket may have: bind it from its own folder."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def device(kind: int, number: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        try:
            os.mknod(path, kind | 0o666, os.makedev(1, number))
        except PermissionError:
            pytest.skip("this machine lets nobody make a device node")

    return make


def raw_name(name: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        os.close(os.open(os.fsencode(path.parent) + b"/" + name, os.O_CREAT | os.O_WRONLY))

    return make


HOSTILE: dict[str, tuple[Callable[[Path], object], ErrorCode]] = {
    "a FIFO": (os.mkfifo, UNSUPPORTED),
    "a socket": (bind_socket, UNSUPPORTED),
    "an endless device": (device(stat.S_IFCHR, 5), UNSUPPORTED),
    "a disk": (device(stat.S_IFBLK, 1), UNSUPPORTED),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), ErrorCode.PATH_OUTSIDE_ROOT),
    "a link to itself": (lambda path: path.symlink_to(path.name), UNSUPPORTED),
    "a link to its own folder": (lambda path: path.symlink_to("."), UNSUPPORTED),
    "a link to the folder above": (lambda path: path.symlink_to(".."), UNSUPPORTED),
    "a link out of the root": (lambda path: path.symlink_to("/etc"), ErrorCode.PATH_OUTSIDE_ROOT),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), ErrorCode.ARTIFACT_UNREADABLE),
    "a newline in a name": (raw_name(b"a\nb"), UNSUPPORTED),
    "an escape in a name": (raw_name(b"a\x1b[2Jb"), UNSUPPORTED),
    "a turned name": (raw_name("exe\u202efdp".encode()), UNSUPPORTED),
    "a name that is not UTF-8": (raw_name(b"\xff\xfe"), UNSUPPORTED),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_no_plain_file_ends_the_scan_typed(root: Path, name: str) -> None:
    make, code = HOSTILE[name]
    make(root / "model" / "weights.bin")
    error = await refusal(root)
    assert error.code is code
    assert error.message.isprintable()
    assert all(value.isprintable() for value in error.context.values())
    assert str(root) not in str(error)


async def test_a_loop_through_two_folders_ends(root: Path) -> None:
    for own, other in (("a", "b"), ("b", "a")):
        (root / "model" / own).mkdir()
        (root / "model" / own / "to").symlink_to(f"../{other}")
    error = await refusal(root)
    assert error.code is UNSUPPORTED
    assert "leads back" in error.message


async def test_links_that_double_at_every_level_end_at_the_bound_of_files(root: Path) -> None:
    """Two links to the next folder in each of thirty: a billion paths to one file."""
    for level in range(30):
        folder = root / "model" / f"l{level}"
        folder.mkdir()
        for side in "ab":
            (folder / side).symlink_to(f"../l{level + 1}")
    (root / "model" / "l30").mkdir()
    (root / "model" / "l30" / "file").touch()
    began_s = time.monotonic()
    error = await refusal(root)
    assert error.code is ErrorCode.SCAN_TOO_LARGE
    assert time.monotonic() - began_s < 20


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Path]:
    """A root whose folder `model` holds a hundred thousand files; in memory where there is such a place, as disks are slow."""
    shared = Path("/dev/shm")  # noqa: S108 -- the folder in it is made by `tempfile`
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as name:
        folder = Path(name) / "model"
        folder.mkdir()
        handle = os.open(folder, os.O_RDONLY)
        for number in range(100_000):
            os.close(os.open(f"{number:06}", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        os.close(handle)
        yield Path(name)


async def test_a_hundred_thousand_files_are_refused_in_little_memory(crowd: Path) -> None:
    error = await refusal(crowd, max_files=10_000, memory_limit_bytes=128 * MIB)
    assert error.code is ErrorCode.SCAN_TOO_LARGE
    assert "10000 files" in error.message


async def test_a_sparse_file_of_ten_gigabytes_with_a_claim_to_match(root: Path) -> None:
    """Its header claims to be as long as the file. It is not read into memory; the file itself is hashed, as any is."""
    path = root / "model" / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 10 * 2**30 - 8))
        file.truncate(10 * 2**30)
    seen: list[ScanProgress] = []
    hashing = asyncio.Event()

    def note(progress: ScanProgress) -> None:
        seen.append(progress)
        if progress.step == "hashing":
            hashing.set()

    place = scan_place(root, memory_limit_bytes=256 * MIB)
    task = asyncio.create_task(run_scan(place, scan_job(), cache=None, budget_s=300, progress=note))
    async with asyncio.timeout(20):
        await asyncio.wait((task, asyncio.ensure_future(hashing.wait())), return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), task
    assert seen[-1].bytes_total >= 10 * 2**30
    # Ten gigabytes take a while; that the headers were read, in a small memory, is what is asked here.
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_header_that_claims_more_than_the_file_has_is_a_finding(root: Path) -> None:
    (root / "model" / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    (root / "model" / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**62, 2**62) + bytes(64))
    (root / "model" / "deep.json").write_text("[" * 200_000)
    (root / "model" / "tokenizer_config.json").write_text('{"a":' * 200_000)
    found = await scan(root, memory_limit_bytes=256 * MIB)
    evidence = evidence_of(found)
    assert {facts.path: facts.problem is not None for facts in evidence.weights} == {
        "model.safetensors": True,
        "model.gguf": True,
    }
    assert "tokenizer_config.json" not in evidence.documents or "problem" in evidence.documents["tokenizer_config.json"]
    assert len(manifest_of(found).files) == 5


# --- what changes while it is scanned ----------------------------------------------------------------------------


def rewritten(root: Path) -> None:
    (root / "model" / "config.json").write_text("other")


def grown(root: Path) -> None:
    with (root / "model" / "config.json").open("a") as file:
        file.write("x")


def added(root: Path) -> None:
    (root / "model" / "late.bin").touch()


def removed(root: Path) -> None:
    (root / "model" / "config.json").unlink()


def swapped(root: Path) -> None:
    other = root / "other"
    other.mkdir()
    for name in ("config.json", "evil.txt"):
        (other / name).write_bytes((root / "model" / name).read_bytes())
    (root / "model").rename(root / "away")
    other.rename(root / "model")


def out_by_a_link(root: Path) -> None:
    (root / "model").rename(root / "away")
    (root / "model").symlink_to("/etc")


def gone(root: Path) -> None:
    (root / "model").rename(root / "away")


@pytest.mark.parametrize("change", [rewritten, grown, added, removed, swapped, out_by_a_link, gone])
async def test_what_changes_while_it_is_scanned_is_noticed(root: Path, change: Callable[[Path], None]) -> None:
    """The reader of `evil.txt` waits until the folder was changed: everything before it was read by then."""
    (root / "model" / "evil.txt").write_text("words")
    here, changed = root.parent / "here", root.parent / "changed"
    os.mkfifo(here)
    os.mkfifo(changed)
    body = f"open({str(here)!r}, 'rb').close(); open({str(changed)!r}, 'rb').read()"
    task = asyncio.create_task(refusal(root, command=reader_that(body)))
    # Opening a FIFO waits for its other end.
    await asyncio.to_thread(lambda: here.open("wb").close())
    change(root)
    await asyncio.to_thread(lambda: changed.open("wb").close())
    error = await task
    assert error.code in {ErrorCode.ARTIFACT_CHANGED, ErrorCode.PATH_OUTSIDE_ROOT}
    assert str(root) not in str(error)


# --- what may not be read ----------------------------------------------------------------------------------------

_AS_NOBODY = """
import asyncio, sys, tempfile
from pathlib import Path
from tests.support.unprivileged import become_nobody
root = Path(sys.argv[1])
become_nobody([root, Path(sys.argv[2])])
from tests.support.scans import refusal, scan
error = asyncio.run(refusal(root, scratch=Path("/")))
print(error.code, error.context.get("file"))
print(asyncio.run(scan(root, "open", scratch=Path("/"))).files_hashed)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_a_file_that_may_not_be_read_is_named(root: Path) -> None:
    """The scan runs as nobody, who may not read one of the files; root would read it all the same."""
    closed = root / "model" / "closed.bin"
    closed.write_bytes(b"secret")
    closed.chmod(0o600)
    (root / "open").mkdir()
    (root / "open" / "file").touch()
    for folder in (root, root / "model", root / "open"):
        folder.chmod(0o755)
    repo = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _AS_NOBODY,
        str(root),
        str(repo),
        cwd=repo,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if b"PermissionError" in err and b"unshare" in err:
        pytest.skip("this machine refuses a mount namespace")
    assert out.decode().splitlines() == ["ARTIFACT_UNREADABLE closed.bin", "1"], err.decode()
