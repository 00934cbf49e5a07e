"""The process of a scan: what it finds, what bounds it, and how it ends when a file or somebody else ends it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from node_agent.artifact_hash import Watch
from node_agent.artifact_root import Stamp
from node_agent.artifact_verify import verify_manifest
from node_agent.digest_keeper import DigestKeeper
from node_agent.hash_cache import FILE_NAME, HashCache, read
from node_agent.scan_host import run_scan
from tests.support.agent_jobs import scan_job
from tests.support.agents import scan_place
from tests.support.scans import (
    LATER,
    evidence_of,
    hasher_that,
    manifest_of,
    reader_that,
    refusal,
    running,
    scan,
    scan_processes,
    scan_seen,
)
from tests.support.waiting import until

MIB = 1024 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = tmp_path / "artifacts" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "weights.bin").write_bytes(os.urandom(3 * MIB + 5))
    (model / "evil.txt").write_text("words")
    return tmp_path / "artifacts"


@pytest.mark.req("P1", "A3")
async def test_a_scan_gives_manifest_evidence_and_progress(root: Path) -> None:
    found, seen = await scan_seen(root)
    files = {path.name: path.read_bytes() for path in (root / "model").iterdir()}
    manifest = manifest_of(found)
    assert {entry.path: (entry.size_bytes, entry.sha256) for entry in manifest.files} == {
        name: (len(data), sha256_hex(data)) for name, data in files.items()
    }
    assert manifest.digest() == "sha256:" + sha256_hex(found.manifest)
    assert evidence_of(found).documents == {"config.json": {"model_type": "bert"}}
    assert (found.files_hashed, found.files_cached) == (3, 0)
    assert seen[0].step == "listing"
    assert {(one.files_total, one.bytes_total) for one in seen[1:]} == {(3, sum(map(len, files.values())))}
    assert scan_processes() == []


async def test_its_layers_are_told(root: Path) -> None:
    layers = {layer.name: layer.active for layer in (await scan(root)).layers}
    assert {"own_session", "closed_descriptors", "scrubbed_environment", "parent_death_signal", "memory_limit"} <= {
        name for name, active in layers.items() if active
    }
    assert layers["seccomp_sockets"] or layers["network_namespace"]


async def test_what_its_layers_refuse(
    root: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The refusals as the kernel says them, from the scan's own log."""
    body = (
        "import errno, socket\n"
        "        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "        for name, what in dict(inet=lambda: socket.socket(socket.AF_INET), fork=os.fork,\n"
        "                exec=lambda: os.execv('/bin/true', ['true']),\n"
        "                write=lambda: os.write(os.open(os.environ['HOME'] + '/x', os.O_CREAT | os.O_WRONLY), b'x')).items():\n"
        "            try:\n"
        "                what()\n"
        "            except OSError as error:\n"
        "                os.write(2, f'{name} {errno.errorcode[error.errno]}\\n'.encode())\n"
        "            else:\n"
        "                os.write(2, f'{name} was let through\\n'.encode())\n"
        "        os.write(2, f'environment {sorted(os.environ)}\\n'.encode())\n"
        "        os.write(2, f'session {os.getsid(0) == os.getpid()}\\n'.encode())\n"
        "        os._exit(7)"
    )
    scratch = root.parent / "scratch"
    scratch.mkdir()
    os.environ["A_SECRET"] = "x"
    try:
        error = await refusal(root, command=reader_that(body), scratch=scratch)
    finally:
        del os.environ["A_SECRET"]
    said = caplog.text + capfd.readouterr().err
    for line in ("inet EACCES", "fork EPERM", "exec EPERM", "write EFBIG", "session True"):
        assert line in said
    assert "A_SECRET" not in said
    assert "'HF_HUB_OFFLINE'" in said
    assert (error.code, error.context["file"]) == (ErrorCode.SCAN_LIMIT_EXCEEDED, "evil.txt")
    assert "exit 7" in error.message


ENDS: dict[str, tuple[str, str]] = {
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9 (SIGKILL)"),
    "crashed": ("import ctypes; ctypes.string_at(0)", "signal 11 (SIGSEGV)"),
    "busy": ("exec('while True: pass')", "more processor time"),
    "busy in C": ("sum(range(10**13))", "more processor time"),
    "greedy": ("kept = [bytearray(64 << 20) for _ in range(1000)]", "more memory"),
    "deep": ("(lambda f: f(f))(lambda f: f(f))", "more nesting"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_a_file_that_ends_its_reader_is_named_and_the_agent_lives_on(root: Path, name: str) -> None:
    body, words = ENDS[name]
    error = await refusal(root, command=reader_that(body), file_cpu_s=1)
    assert (error.code, error.context["file"]) == (ErrorCode.SCAN_LIMIT_EXCEEDED, "evil.txt")
    assert words in error.message
    assert "evil.txt" in error.message
    assert scan_processes() == []
    assert (await scan(root)).files_hashed == 3


async def test_a_process_that_dies_before_it_reads_a_file_is_the_nodes_own_fault(root: Path) -> None:
    for command in ((sys.executable, "-c", "raise SystemExit(3)"), (sys.executable, "-c", "import os; os.abort()")):
        error = await refusal(root, command=command)
        assert error.code is ErrorCode.NODE_FAULT
        assert "before it read a file" in error.message
    error = await refusal(root, command=(str(root / "no such program"),))
    assert error.code is ErrorCode.NODE_FAULT


_SAYING = """
import os, sys
from adapters.child.channel import Channel
from node_agent.scan_child.protocol import ScanDigests, ScanDone, ScanPart
channel = Channel(int(sys.argv[1]))
{body}
"""
SAYINGS: dict[str, tuple[str, ErrorCode]] = {
    "noise": ("os.write(channel.descriptor, bytes([255]) * 1_000)", ErrorCode.MESSAGE_TOO_LARGE),
    "no JSON": ("os.write(channel.descriptor, bytes([0, 0, 0, 2, 120, 120]))", ErrorCode.MALFORMED_MESSAGE),
    "an end without a manifest": ("channel.send(ScanDone(files_hashed=1, files_cached=0))", ErrorCode.NODE_FAULT),
    "more digests than files": (
        "channel.send(ScanDigests(rows=((1, 2, 3, 4, 5, 'ab' * 32),) * 101))",
        ErrorCode.NODE_FAULT,
    ),
    "a digest that is none": (
        "channel.send(ScanDigests(rows=((1, 2, 3, 4, 5, 'AB' * 32),)))",
        ErrorCode.MALFORMED_MESSAGE,
    ),
    "a number that no kernel gives": (
        "channel.send(ScanDigests(rows=((2**64, 2, 3, 4, 5, 'ab' * 32),)))",
        ErrorCode.MALFORMED_MESSAGE,
    ),
    "more than a manifest can be": (
        "while True: channel.send(ScanPart(part='manifest', data=bytes(128 * 1024)))",
        ErrorCode.SCAN_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", SAYINGS)
async def test_a_process_that_does_not_keep_to_the_protocol_ends_typed(root: Path, name: str) -> None:
    body, code = SAYINGS[name]
    error = await refusal(root, command=(sys.executable, "-P", "-c", _SAYING.format(body=body)))
    assert error.code is code
    assert scan_processes() == []


async def test_a_scan_that_is_cancelled_is_gone_whatever_it_thinks_of_it(root: Path) -> None:
    command = reader_that("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)")
    job = scan_job()
    task = asyncio.create_task(
        run_scan(scan_place(root, command=command), job, cache=None, budget_s=300, progress=lambda _: None)
    )
    pid = await running(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scan_processes() == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_file_system_that_does_not_answer_is_named_with_its_file(root: Path) -> None:
    error = await refusal(root, command=reader_that("time.sleep(1000)"), budget_s=6.0)
    assert (error.code, error.context["file"]) == (ErrorCode.SCAN_LIMIT_EXCEEDED, "evil.txt")
    assert error.message.startswith(
        "the scan was not done after 6 s; evil.txt was being read, without another byte for"
    )
    assert scan_processes() == []


async def test_it_dies_with_its_agent(root: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.support.scans import reader_that, scan\n"
        "asyncio.run(scan(Path(sys.argv[1]), command=reader_that('time.sleep(1000)')))\n"
    )
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(root), cwd=Path(__file__).parents[2]
    )
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
    (pid,) = await until(
        lambda: [pid for pid in children.read_text().split() if b"file_cpu_s" in _command(pid)], "the scan"
    )
    agent.send_signal(signal.SIGKILL)
    await agent.wait()
    await until(lambda: not _command(pid), "the end of the scan")


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


# --- the cache of digests ----------------------------------------------------------------------------------------


def poisoned(root: Path, cache: Path) -> None:
    """Every file of the model, with a digest that is none of it."""
    found = dict.fromkeys(read(cache), "ab" * 32)
    assert found
    (cache / FILE_NAME).unlink()
    HashCache(cache).remember(found)


async def test_a_second_scan_hashes_only_what_changed(root: Path, tmp_path: Path) -> None:
    cache = HashCache(tmp_path / "cache")
    first = await scan(root, cache=cache.folder, command=LATER, remember=cache.remember)
    learned: dict[Stamp, str] = {}
    again = await scan(root, cache=cache.folder, command=LATER, remember=learned.update)
    assert (again.files_hashed, again.files_cached, again.manifest) == (0, 3, first.manifest)
    assert learned == {}
    (root / "model" / "evil.txt").write_text("other")
    third = await scan(root, cache=cache.folder, command=LATER)
    assert (third.files_hashed, third.files_cached) == (1, 2)
    assert third.manifest != first.manifest


def sparse(path: Path, size_bytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(size_bytes)


async def end_by_itself(root: Path, cache: HashCache, body: str) -> ErrorCode:
    error = await refusal(
        root, cache=cache.folder, command=hasher_that(body), remember=cache.remember, threads=1, budget_s=20.0
    )
    return error.code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)", ErrorCode.SCAN_LIMIT_EXCEEDED),
        ("raise MemoryError", ErrorCode.SCAN_LIMIT_EXCEEDED),
        ("return 0", ErrorCode.ARTIFACT_CHANGED),
    ],
    ids=["killed", "out of memory", "a file that became shorter"],
)
async def test_a_scan_that_ends_early_leaves_the_digests_of_the_files_it_finished(
    root: Path, tmp_path: Path, body: str, code: ErrorCode
) -> None:
    model = root / "model"
    (model / "stuck.bin").write_bytes(os.urandom(2 * MIB))
    (model / "evil.txt").unlink()
    cache = HashCache(tmp_path / "cache")
    assert await end_by_itself(root, cache, body) is code
    finished = {Stamp.of((model / name).stat()) for name in ("weights.bin", "config.json")}
    assert set(read(cache.folder)) == finished
    again = await scan(root, cache=cache.folder, command=LATER)
    assert (again.files_hashed, again.files_cached) == (1, 2)
    assert again.manifest == (await scan(root)).manifest


async def test_a_scan_that_is_cancelled_leaves_them_too(root: Path, tmp_path: Path) -> None:
    (root / "model" / "stuck.bin").write_bytes(os.urandom(2 * MIB))
    cache = HashCache(tmp_path / "cache")
    place = scan_place(root, command=hasher_that("time.sleep(1000)"), threads=1)
    told: dict[Stamp, str] = {}
    async with DigestKeeper(cache, interval_s=1_000.0) as keeper:

        def remember(digests: Mapping[Stamp, str]) -> None:
            told.update(digests)
            keeper.offer(digests)

        task = asyncio.create_task(
            run_scan(place, scan_job(), cache=cache.folder, progress=lambda _: None, remember=remember)
        )
        await until(lambda: len(told) == 3 or task.done(), "the digests that are known")
        await until(lambda: len(read(cache.folder)) > 0, "the first of them, while the scan runs")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert read(cache.folder) == told
    again = await scan(root, cache=cache.folder, command=LATER)
    assert (again.files_hashed, again.files_cached) == (1, 3)


async def test_a_file_that_hangs_is_named_and_not_the_one_that_is_read_beside_it(root: Path) -> None:
    (root / "model" / "stuck.bin").write_bytes(os.urandom(5 * MIB))
    for number in range(9):
        (root / "model" / f"slow-{number}.bin").write_bytes(bytes((4 * MIB) - number))
    sparse(root / "model" / "slow.bin", 2**34)
    error = await refusal(root, command=hasher_that("time.sleep(1000)"), threads=2, budget_s=6.0)
    assert (error.code, error.context["file"]) == (ErrorCode.SCAN_LIMIT_EXCEEDED, "stuck.bin")


async def test_a_disk_that_is_only_slow_blames_no_file(root: Path) -> None:
    sparse(root / "model" / "slow.bin", 2**34)
    error = await refusal(root, command=hasher_that("raise OSError"), threads=2, budget_s=4.0)
    assert (error.code, "file" in error.context) == (ErrorCode.SCAN_LIMIT_EXCEEDED, False)
    assert re.search(r"after 4 s; [0-9.]+ of 17\.2 GB were hashed by then", error.message)


async def test_a_file_that_just_changed_is_not_remembered(root: Path, tmp_path: Path) -> None:
    learned: dict[Stamp, str] = {}
    await scan(root, cache=tmp_path / "cache", remember=learned.update)
    assert learned == {}


async def test_a_damaged_cache_costs_nothing_but_time(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / FILE_NAME).write_bytes(os.urandom(10_000))
    found = await scan(root, cache=cache)
    assert (found.files_hashed, found.files_cached) == (3, 0)


@pytest.mark.req("P5")
async def test_what_a_cache_says_never_reaches_the_verification_of_a_probe(root: Path, tmp_path: Path) -> None:
    """A poisoned cache gives a wrong manifest, and a probe of that manifest finds the difference in the bytes."""
    cache = HashCache(tmp_path / "cache")
    await scan(root, cache=cache.folder, command=LATER, remember=cache.remember)
    poisoned(root, cache.folder)
    found = await scan(root, cache=cache.folder, command=LATER)
    manifest = manifest_of(found)
    assert found.files_cached == 3
    assert {entry.sha256 for entry in manifest.files} == {"ab" * 32}
    with pytest.raises(ModelForgeError) as caught:
        verify_manifest(root, "model", manifest, Watch())
    assert caught.value.code is ErrorCode.ARTIFACT_CHANGED
    verify_manifest(root, "model", manifest_of(await scan(root)), Watch())
