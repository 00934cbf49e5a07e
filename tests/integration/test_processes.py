"""Processes of the stack, real ones: how they end, and that none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from modelforge.lifeline import gone
from modelforge.supervisor import ProcessPart
from tests.support.cli import eventually, is_alive, read_line, wait_gone

POLITE = "print('up', flush=True); import signal; signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)
PARENT = """
import sys, time
from pathlib import Path
from modelforge.supervisor import ProcessPart
async def ready(): pass
folder = Path(sys.argv[1])
part = ProcessPart("child", [sys.executable, "-c", sys.argv[2]], log_path=folder / "child.log", folder=folder,
                   variables={}, ready=ready)
part.start()
print(part.pid, flush=True)
import signal
signal.pause()
"""


async def nothing() -> None:
    """Readiness is looked for in the log here."""


def part(folder: Path, script: str) -> ProcessPart:
    return ProcessPart(
        "child",
        [sys.executable, "-c", script],
        log_path=folder / "child.log",
        folder=folder,
        variables={},
        ready=nothing,
    )


def wait_for_log(log: Path) -> None:
    eventually(lambda: log.exists() and b"up\n" in log.read_bytes(), "the process says that it is up")


@pytest.mark.parametrize(
    ("script", "limit_s", "how"), [(POLITE, 20.0, "signal 15 (SIGTERM)"), (STUBBORN, 0.1, "signal 9 (SIGKILL)")]
)
async def test_a_part_stops_gracefully_or_by_force(tmp_path: Path, script: str, limit_s: float, how: str) -> None:
    one = part(tmp_path, script)
    one.start()
    pid = one.pid
    assert pid is not None
    wait_for_log(one.log_path)
    await one.stop(limit_s)
    assert one.pid is None
    assert not is_alive(pid)
    assert one.ended() == how
    await one.stop(limit_s)


async def test_the_end_of_a_process_is_learned_without_asking(tmp_path: Path) -> None:
    one = part(tmp_path, POLITE)
    one.start()
    assert one.pid is not None
    waiting = asyncio.ensure_future(gone(one.pid))
    wait_for_log(one.log_path)
    assert not waiting.done()
    os.kill(one.pid, signal.SIGKILL)
    await asyncio.wait_for(waiting, 10)
    one.kill()
    await asyncio.wait_for(gone(2**22 - 1), 10)


def test_a_program_that_cannot_be_started_is_typed(tmp_path: Path) -> None:
    one = ProcessPart(
        "child",
        [str(tmp_path / "no-program")],
        log_path=tmp_path / "x.log",
        folder=tmp_path,
        variables={},
        ready=nothing,
    )
    with pytest.raises(ModelForgeError) as caught:
        one.start()
    assert caught.value.code is ErrorCode.SERVER_START_FAILED


def test_a_killed_parent_leaves_no_child(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), POLITE], stdout=subprocess.PIPE)
    try:
        child = int(read_line(parent, 20))
        assert is_alive(child)
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()
    wait_gone([child], 10)
