"""Folders made to hurt the reader, through the real server, controller and agent: a code each, and the agent scans on."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bus import verbs
from bus.codec import decode, encode
from bus.messages import api
from bus.messages.artifacts import Manifest, ScanView
from bus.messages.gates import Assessment
from bus.messages.profiles import RuntimeProfile
from bus.operator import Operator
from node_agent.scan_host import ScanPlace, run_scan
from tests.support import repo
from tests.support.agent_jobs import scan_job
from tests.support.corpus import folders, hostile
from tests.support.corpus.row import write
from tests.support.stack import NODE, Stack, running_stack, until

GOOD = "good"
PEAK_BYTES = 2 * 1024**3
SCAN_BYTES = 512 * 1024**2


async def scanned(operator: Operator, path: str, timeout_s: float = 40.0) -> ScanView:
    """A whole scan."""
    request = api.ScanRequest(node=NODE, path=path, request_id=secrets.token_hex(8))
    scan = await operator.call(verbs.ARTIFACTS_SCAN, request)

    async def ended() -> ScanView | None:
        view = await operator.call(verbs.SCANS_SHOW, api.ById(id=scan.id))
        return view if view.finished_at else None

    view: ScanView = await until(ended, f"the scan of {path} ends", timeout_s=timeout_s)
    return view


async def assessed(operator: Operator, scan: ScanView) -> Assessment:
    """Of what was scanned, under the profile `row`."""
    request = api.AssessRequest(set_digest=scan.set_digest or "", profile="row", node=NODE)
    return await operator.call(verbs.ASSESSMENTS_CREATE, request)


async def scans_on(stack: Stack, operator: Operator) -> None:
    """The same agent process does its next work."""
    view = await scanned(operator, GOOD)
    assert view.failure is None
    assert (await assessed(operator, view)).verdict == "compatible"
    assert stack.processes["agent"].poll() is None


def no_control_characters(answer: object) -> None:
    """Nothing of a foreign name or word may move a terminal's cursor."""
    text = json.dumps(json.loads(encode(answer)), ensure_ascii=False)
    escaped = json.loads(encode(answer))
    assert not [char for char in flat(escaped) if not char.isprintable()], text


def flat(value: Any) -> str:
    """All text in a JSON value."""
    if isinstance(value, dict):
        return "".join(flat(inner) for pair in value.items() for inner in pair)
    if isinstance(value, list):
        return "".join(flat(inner) for inner in value)
    return value if isinstance(value, str) else ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An artifact root with one good set."""
    root = tmp_path / "artifacts"
    write(folders.embedder(), root / GOOD)
    return root


async def prepared(operator: Operator) -> None:
    await operator.call(verbs.PROFILES_CREATE, api.ProfileRequest(profile=RuntimeProfile(name="row")))


THIRDS = [sorted(hostile.FOLDERS)[third::3] for third in range(3)]


@pytest.mark.parametrize("names", THIRDS, ids=["a", "b", "c"])
async def test_a_hostile_folder_ends_in_a_code_or_in_a_blocked_assessment(
    names: list[str], root: Path, tmp_path: Path
) -> None:
    for name in names:
        (root / name).mkdir()
        hostile.FOLDERS[name][0](root / name)
    ends: dict[str, str | None] = {}
    async with running_stack(tmp_path / "stack", root) as (stack, operator):
        await prepared(operator)
        for name in names:
            view = await scanned(operator, name)
            no_control_characters(view)
            ends[name] = None if view.failure is None else view.failure.code
            if view.set_digest is not None:
                assessment = await assessed(operator, view)
                no_control_characters(assessment)
                ends[name] = None if assessment.verdict == "blocked" else assessment.verdict
        await scans_on(stack, operator)
        assert peak_bytes(stack.processes["agent"].pid) < PEAK_BYTES

    assert ends == {name: hostile.FOLDERS[name][1] for name in names}


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had, by the kernel's own account."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@contextmanager
def restless(path: Path) -> Iterator[None]:
    """Another process's work: the file's last byte is written again and again while the block runs."""
    stop = threading.Event()

    def write_on() -> None:
        with path.open("r+b", buffering=0) as file:
            while not stop.is_set():
                file.seek(-1, os.SEEK_END)
                file.write(secrets.token_bytes(1))

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.req("A3")
async def test_a_file_that_changes_while_it_is_scanned_is_named(root: Path, tmp_path: Path) -> None:
    write(folders.embedder(), root / "moving")
    moving = root / "moving" / "optimizer.dat"
    moving.write_bytes(bytes(64 * 1024 * 1024))
    async with running_stack(tmp_path / "stack", root) as (stack, operator):
        await prepared(operator)
        with restless(moving):
            view = await scanned(operator, "moving")
        assert view.failure is not None
        assert view.failure.code == "ARTIFACT_CHANGED"
        assert moving.name in view.failure.message
        assert view.set_digest is None
        await scans_on(stack, operator)
        still = await scanned(operator, "moving")
        assert still.failure is None, "it rests, and is a set"


async def test_a_hundred_thousand_files_are_one_set_within_bounded_memory(tmp_path: Path) -> None:
    """Where a controller allows so many: the scan's process may not have more than it is given."""
    (tmp_path / "many").mkdir()
    hostile.many_files(tmp_path / "many")
    count = sum(len(files) for _, _, files in os.walk(tmp_path / "many"))
    place = ScanPlace(root=tmp_path, scratch=tmp_path, threads=2, memory_limit_bytes=SCAN_BYTES)

    found = await run_scan(place, scan_job("many", max_files=count), cache=None, progress=lambda _: None)

    assert count > 100_000
    assert (found.files_hashed, len(decode(found.manifest, Manifest).files)) == (count, count)


AS_NOBODY = """
import sys
from pathlib import Path
from tests.support.unprivileged import become_nobody
import adapters.formats.evidence, node_agent.artifact_scan
try:
    become_nobody([Path.cwd()])
except OSError as error:
    sys.exit(f"refused: {error}")
import json, os, tempfile
from bus.errors import ModelForgeError
from node_agent.artifact_scan import ScanWatch, scan_folder
ends = {}
with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    for folder, closed in (("file", "secret.bin"), ("folder", "secret"), ("open", None)):
        (root / folder).mkdir()
        (root / folder / "config.json").write_text("{}")
        if closed == "secret":
            (root / folder / closed).mkdir()
        elif closed:
            (root / folder / closed).write_bytes(b"x")
        if closed:
            (root / folder / closed).chmod(0)
    for folder in ("file", "folder", "open"):
        try:
            scan_folder(root, folder, max_files=10, watch=ScanWatch())
            ends[folder] = "scanned"
        except ModelForgeError as error:
            ends[folder] = f"{error.code.value} {error.context.get('file')}"
    (root / "folder" / "secret").chmod(0o700)
print(json.dumps({"uid": os.getuid(), "ends": ends}))
"""


async def test_what_may_not_be_read_is_named() -> None:
    """As nobody: permission bits do not stop root."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-P", "-c", AS_NOBODY], cwd=repo.ROOT, env={**os.environ, "PYTHONPATH": "."},
        check=False, capture_output=True, text=True, timeout=50,
    )  # fmt: skip

    if done.returncode and "refused:" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "uid": 65534,
        "ends": {"file": "ARTIFACT_UNREADABLE secret.bin", "folder": "ARTIFACT_UNREADABLE secret", "open": "scanned"},
    }
