from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from adapters.child.guard import Guard
from adapters.child.template import unclean


def watch() -> Guard:
    return Guard(lambda _call, _family: None, processes=False)


def test_a_process_with_more_than_one_thread_is_not_forked() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        failed = unclean(watch())
    finally:
        release.set()
        thread.join()
    assert failed is not None
    assert failed.importable
    assert "threads" in failed.message


def test_a_process_that_touched_cuda_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.child.template.os.listdir", lambda _path: ["1"])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True)))
    failed = unclean(watch())
    assert failed is not None
    assert failed.importable
    assert "CUDA" in failed.message


@pytest.mark.req("P11")
def test_a_library_that_calls_home_while_it_is_imported_ends_the_template() -> None:
    """Also when it swallowed the refusal."""
    guard = watch()
    guard.network_attempts = 1
    failed = unclean(guard)
    assert failed is not None
    assert (failed.code, failed.importable) == ("OFFLINE_LOAD_VIOLATION", False)
