"""Temporary files of a killed agent are swept by the next one; those of a living one are not."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from node_agent.scratch import PREFIX, _remove_unless_locked, own_scratch

HOLDER = """
import sys
from pathlib import Path
from node_agent.scratch import own_scratch
with own_scratch(Path(sys.argv[1])) as folder:
    (folder / "probe").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_is_private_and_gone_at_the_end(tmp_path: Path) -> None:
    with own_scratch(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "deep" / "er").mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_the_killed_are_swept_and_the_living_are_left_alone(tmp_path: Path) -> None:
    (alive, of_the_living), (killed, leftover) = holder(tmp_path), holder(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.wait(10)
    assert leftover.exists()
    with own_scratch(tmp_path):
        assert not leftover.exists()
        assert (of_the_living / "probe").is_dir()
    alive.communicate(timeout=10)
    killed.communicate(timeout=10)
    assert list(tmp_path.iterdir()) == []


def test_what_only_looks_like_a_leftover_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}file").touch()
    with own_scratch(tmp_path):
        assert elsewhere.is_dir()
        assert (tmp_path / f"{PREFIX}file").exists()


def sweeper_that(does: Callable[[Path], None], times: int) -> Callable[..., str]:
    """`mkdtemp` of an agent beside which another one starts: it meets the new folder before that is locked."""
    left = [times]

    def make(**options: Any) -> str:
        folder: str = tempfile.mkdtemp(**options)
        if left[0]:
            left[0] -= 1
            does(Path(folder))
        return folder

    return make


HELD: list[int] = []


def hold(folder: Path) -> None:
    """The sweeper has the lock and is about to remove the folder."""
    HELD.append(os.open(folder, os.O_RDONLY))
    fcntl.flock(HELD[-1], fcntl.LOCK_EX)


@pytest.mark.parametrize("does", [_remove_unless_locked, hold])
def test_a_folder_that_is_swept_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Callable[[Path], None]
) -> None:
    monkeypatch.setattr("node_agent.scratch.tempfile", SimpleNamespace(mkdtemp=sweeper_that(does, 2)))
    with own_scratch(tmp_path) as folder:
        assert folder.is_dir()
        _remove_unless_locked(folder)
        assert folder.is_dir()
    while HELD:
        os.close(HELD.pop())


def test_a_folder_that_is_removed_after_it_was_opened_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is then one on nothing: nobody else can see it."""
    real = fcntl.flock
    removed: list[Path] = []

    def late(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].rmdir()

    monkeypatch.setattr("node_agent.scratch.fcntl.flock", late)
    with own_scratch(tmp_path) as folder:
        assert folder.is_dir()
        assert folder not in removed


def test_sweepers_that_never_end_are_a_typed_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = sweeper_that(_remove_unless_locked, 1_000)
    monkeypatch.setattr("node_agent.scratch.tempfile", SimpleNamespace(mkdtemp=make))
    with pytest.raises(ModelForgeError) as caught, own_scratch(tmp_path):
        pytest.fail("there is no folder to work in")
    assert caught.value.code is ErrorCode.NODE_FAULT


def test_many_that_start_at_once_all_get_a_folder(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def live(_: int) -> None:
        for _ in range(25):
            with own_scratch(tmp_path) as folder:
                (folder / "probe").mkdir()
        together.wait(30)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(live, range(8)))
    assert list(tmp_path.iterdir()) == []


def test_no_folder_is_a_typed_fault(tmp_path: Path) -> None:
    with pytest.raises(ModelForgeError) as caught, own_scratch(tmp_path / "absent"):
        pytest.fail("there is no folder to work in")
    assert caught.value.code is ErrorCode.NODE_FAULT
