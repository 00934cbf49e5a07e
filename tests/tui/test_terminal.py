"""The real process on a real terminal: no colour when NO_COLOR asks for none, and a clean end."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tui.app import ModelForgeApp, PlainApp, make_app
from tui.theme import PAINTS_PER_S, PAINTS_PER_S_OVER_SSH, paints_per_s

SCRIPT = """
import os
from tests.support.pictures import NOW, FakeDesk
from tui.app import make_app
raise SystemExit(make_app(FakeDesk(), os.environ, clock=lambda: NOW).run() or 0)
"""
ROOT = Path(__file__).parents[2]


def read(master: int) -> bytes:
    """What there is within a moment; nothing once the other side has closed (EIO on Linux)."""
    if not select.select([master], [], [], 0.2)[0]:
        return b""
    try:
        return os.read(master, 65_536)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


def paint(environment: dict[str, str]) -> tuple[bytes, int]:
    """Start it on a pseudo-terminal, wait until it has painted, leave with ctrl+q: the bytes and the exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    clean = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env={**clean, **environment}
    )
    os.close(slave)
    seen = b""
    deadline = time.monotonic() + 40
    try:
        while b"OFFLINE_LOAD_VIOLATION" not in seen or b"event 1842" not in seen:
            assert time.monotonic() < deadline, seen[-2_000:]
            seen += read(master)
        os.write(master, b"\x11")
        while process.poll() is None:
            assert time.monotonic() < deadline
            read(master)  # a full terminal would hold up its end
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return seen, process.returncode


def colours(seen: bytes) -> set[str]:
    """Every parameter of a colour in the output, without the attributes (bold, dim, reverse) and the defaults."""
    found = {code for match in re.findall(rb"\x1b\[([\d;]*)m", seen) for code in match.decode().split(";")}
    return found - {"", "0", "1", "2", "3", "4", "7", "39", "49"}


def test_no_colour_means_none() -> None:
    seen, code = paint({"NO_COLOR": "1"})
    assert colours(seen) == set()
    assert code == 0


def test_colours_otherwise() -> None:
    seen, code = paint({})
    assert colours(seen)
    assert code == 0


@pytest.mark.parametrize(
    ("environment", "kind"), [({}, ModelForgeApp), ({"NO_COLOR": ""}, ModelForgeApp), ({"NO_COLOR": "1"}, PlainApp)]
)
def test_the_kind_of_application_follows_the_environment(environment: dict[str, str], kind: type) -> None:
    from tests.support.pictures import FakeDesk  # noqa: PLC0415 -- keeps the terminal's script and this apart

    assert type(make_app(FakeDesk(), environment)) is kind


def test_paints_are_rarer_over_ssh() -> None:
    assert paints_per_s({}) == PAINTS_PER_S == 4
    assert paints_per_s({"SSH_CONNECTION": "10.0.0.1 22"}) == PAINTS_PER_S_OVER_SSH == 2
