"""Counting is closed, thread-safe and harmless."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from observability.counters import ALL_SERIES, Counters, Operation, Outcome


@pytest.mark.req("O1")
def test_every_series_exists_from_the_start() -> None:
    assert Counters().snapshot() == dict.fromkeys(ALL_SERIES, 0)
    assert len(ALL_SERIES) == len(Operation) * len(Outcome)


@pytest.mark.req("O1")
def test_no_input_makes_a_new_series_or_raises() -> None:
    counters = Counters()
    foreigners: tuple[object, ...] = ("prb-0000000000", None, ["unhashable"], {})
    for foreign in foreigners:
        counters.count(cast("Any", foreign), Outcome.FAILED)
        counters.count(Operation.PROBE, cast("Any", foreign))
    assert counters.snapshot() == dict.fromkeys(ALL_SERIES, 0)
    assert counters.misuses == 8


def test_no_count_is_lost_between_threads() -> None:
    counters, each = Counters(), 5_000

    def work() -> None:
        for _ in range(each):
            counters.count(Operation.CLAIM, Outcome.SUCCEEDED)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.snapshot()[Operation.CLAIM, Outcome.SUCCEEDED] == 4 * each


def test_a_snapshot_is_a_copy() -> None:
    counters = Counters()
    counters.snapshot()[Operation.API, Outcome.FAILED] = 99
    assert counters.snapshot()[Operation.API, Outcome.FAILED] == 0
