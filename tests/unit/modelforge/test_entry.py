"""Ctrl-C while the command is still being imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bus.errors import CODES, ErrorCode, Exit
from modelforge import entry

# The signal arrives while the first heavy module is looked for: the moment is always the same.
_SCRIPT = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background inherits that it is ignored
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "rich_click":
            os.kill(os.getpid(), signal.SIGINT)
        return None
sys.meta_path.insert(0, Finder())
runpy.run_module("modelforge", run_name="__main__")
"""


def test_an_interrupt_during_the_imports_ends_with_130_and_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SCRIPT], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("error: INTERRUPTED: ")
    assert "Traceback" not in done.stderr


def test_the_words_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "modelforge.cli.main", raising=False)
    monkeypatch.setattr("builtins.__import__", interrupt)
    with pytest.raises(SystemExit) as caught:
        entry.main()
    monkeypatch.undo()
    assert caught.value.code == Exit.INTERRUPTED
    assert CODES[ErrorCode.INTERRUPTED].meaning in capsys.readouterr().err
