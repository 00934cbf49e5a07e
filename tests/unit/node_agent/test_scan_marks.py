"""Which file holds a scan up: noted by its threads in one process, seen by another."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from node_agent.scan_child import marks as module
from node_agent.scan_child.marks import SLOT_BYTES, Reading, ReadMarks

SECOND_NS = 1_000_000_000


class Clock:
    """Time in whole seconds, as the test says."""

    def __init__(self) -> None:
        self.now_s = 1

    def monotonic_ns(self) -> int:
        return self.now_s * SECOND_NS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def both() -> Iterator[tuple[ReadMarks, ReadMarks]]:
    """The agent's view of two hashing threads, and the scan's own."""
    descriptor = ReadMarks.descriptor(2)
    ours, theirs = ReadMarks(descriptor), ReadMarks(descriptor)
    os.close(descriptor)
    yield ours, theirs
    for marks in (ours, theirs):
        marks.close()


class Threads:
    """Two threads that do what they are told, one after the other."""

    def __init__(self) -> None:
        self.pools = [ThreadPoolExecutor(1) for _ in range(2)]

    def on(self, thread: int, call: Callable[[], None]) -> None:
        self.pools[thread].submit(call).result()


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    for pool in threads.pools:
        pool.shutdown()


def test_a_path_is_seen_through_the_memory(both: tuple[ReadMarks, ReadMarks], clock: Clock) -> None:
    ours, theirs = both
    assert (ours.longest(), ours.ever()) == (None, False)
    for path in ("a", "a longer name/\u00e9", "x" * 10_000, "b"):
        theirs.begin(path)
        assert ours.longest() == Reading(path[: SLOT_BYTES - 10], 0.0)
    clock.now_s += 7
    assert ours.longest() == Reading("b", 7.0)
    theirs.end()
    assert (ours.longest(), ours.ever()) == (None, True)
    theirs.progress()
    assert ours.longest() is None, "no file is read by a thread that says that it goes on"


def test_the_file_without_progress_is_told_and_not_the_newest(
    both: tuple[ReadMarks, ReadMarks], clock: Clock, threads: Threads
) -> None:
    ours, theirs = both
    threads.on(0, lambda: theirs.begin("hangs"))
    threads.on(1, lambda: theirs.begin("large and healthy"))
    clock.now_s += 1
    threads.on(0, theirs.progress)
    clock.now_s += 1
    threads.on(1, theirs.progress)
    assert ours.longest() == Reading("hangs", 1.0)
    for _ in range(3):
        clock.now_s += 1
        threads.on(1, theirs.end)
        threads.on(1, lambda: theirs.begin("begun last"))
    assert ours.longest() == Reading("hangs", 4.0)
    threads.on(0, theirs.end)
    assert ours.longest() == Reading("begun last", 0.0)


def test_an_older_file_that_goes_on_is_not_blamed(
    both: tuple[ReadMarks, ReadMarks], clock: Clock, threads: Threads
) -> None:
    ours, theirs = both
    threads.on(0, lambda: theirs.begin("begun first"))
    clock.now_s += 1
    threads.on(1, lambda: theirs.begin("hangs"))
    clock.now_s += 5
    threads.on(0, theirs.progress)
    assert ours.longest() == Reading("hangs", 5.0)


def test_threads_beyond_the_places_share_them(both: tuple[ReadMarks, ReadMarks]) -> None:
    ours, theirs = both
    for number in range(7):
        thread = threading.Thread(target=theirs.begin, args=(f"{number}",))
        thread.start()
        thread.join()
    found = ours.longest()
    assert found is not None
    assert found.path == "4", "places of three: the newest three files are there"


def test_the_other_process_cannot_shorten_the_memory() -> None:
    descriptor = ReadMarks.descriptor(2)
    try:
        for size in (0, SLOT_BYTES * 10):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)
