"""The `modelforge` command as a process of its own: how a person or a script meets it."""

from __future__ import annotations

import io
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from modelforge.cli.boundary import run
from modelforge.cli.main import call

COMMAND = (sys.executable, "-P", "-m", "modelforge")
LIMIT_S = 50.0


@dataclass(frozen=True)
class Result:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The data of the one envelope on stdout."""
        return json.loads(self.out)["data"]


def clean_environment(state: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without the product's variables and without the home's configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MODELFORGE_")}
    return {**kept, "MODELFORGE_STATE": str(state), "XDG_CONFIG_HOME": str(state / "no-config"), **(extra or {})}


def modelforge(state: Path, *arguments: str, extra: Mapping[str, str] | None = None) -> Result:
    """Run one command to its end; whatever happens, no traceback may reach the screen."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
        env=clean_environment(state, extra),
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return Result(done.returncode, done.stdout, done.stderr)


def modelforge_here(state: Path, *arguments: str) -> Result:
    """The same in this process, for the many calls whose start would cost more than they do."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MODELFORGE_")]:
            patch.delenv(name)
        patch.setenv("MODELFORGE_STATE", str(state))
        patch.setenv("XDG_CONFIG_HOME", str(state / "no-config"))
        code = run(call, arguments)
    assert "Traceback" not in err.getvalue() + out.getvalue(), err.getvalue()
    return Result(code, out.getvalue(), err.getvalue())


class UpProcess:
    """`modelforge up`, ready when constructed."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self.state = state
        self.err_path = state.parent / "up.err"
        with self.err_path.open("wb") as err:
            self.process = subprocess.Popen(
                [*COMMAND, "up", "--json", "--state", str(state), *arguments],
                stdout=subprocess.PIPE,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env=clean_environment(state),
            )
        try:
            self.ready = json.loads(read_line(self.process, LIMIT_S))["data"]
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    def pids(self) -> dict[str, int]:
        return dict(self.ready["pids"])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(LIMIT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


def read_line(process: subprocess.Popen[bytes], limit_s: float) -> bytes:
    """One line of a process's stdout, within a time."""
    assert process.stdout is not None
    deadline, line = time.monotonic() + limit_s, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            assert selector.select(max(0.0, deadline - time.monotonic())), f"no line in {limit_s:g} s; so far {line!r}"
            piece = os.read(process.stdout.fileno(), 65_536)
            assert piece, f"the process ended ({process.wait()}) before it wrote a line"
            line += piece
    return line


def is_alive(pid: int) -> bool:
    """Does the process run (a zombie does not)?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Ask until the answer is yes."""
    deadline, pace = time.monotonic() + limit_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:g} s in vain until {what}"
        pace.wait(0.05)  # the rate of asking; nobody sets it


def wait_gone(pids: list[int], limit_s: float) -> None:
    """Wait until none of the processes runs."""
    eventually(lambda: not any(is_alive(pid) for pid in pids), f"{pids} are gone", limit_s)
