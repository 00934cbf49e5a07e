"""Temporary files of a killed agent are swept by the next one; those of a living one are not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from node_agent.scratch import PREFIX, own_scratch

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


def test_no_folder_is_a_typed_fault(tmp_path: Path) -> None:
    with pytest.raises(ModelForgeError) as caught, own_scratch(tmp_path / "absent"):
        pytest.fail("there is no folder to work in")
    assert caught.value.code is ErrorCode.NODE_FAULT
