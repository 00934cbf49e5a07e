from __future__ import annotations

from collections.abc import Iterator

import pytest

from bus.messages.evidence import GpuProcess, GpuSample
from node_agent.measure.reclaim import Ending, judge, watch_reclaim, without_gpu

GONE = Ending(process_gone=True, exit_status="exit 0")
THERE = Ending(process_gone=False, exit_status="signal 9 (SIGKILL)")
TOLERANCE = 50


def card(used: int | None, *foreign: tuple[int, int | None], own: int | None = None) -> GpuSample:
    processes = tuple(GpuProcess(pid=pid, used_bytes=size) for pid, size in foreign)
    return GpuSample(uuid="GPU-x", used_bytes=used, process_bytes=own, foreign=processes)


@pytest.mark.req("P8")
@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (card(300), "reclaimed"),
        (card(350), "reclaimed"),
        (card(250), "reclaimed"),
        (card(351), "not_reclaimed"),
        (card(900, own=400), "not_reclaimed"),
        (card(900, (7, 550)), "inconclusive"),
        (card(900, (7, 549)), "not_reclaimed"),
        (card(900, (5, 700)), "inconclusive"),
        (card(900, (5, 100)), "not_reclaimed"),
        (card(900, (7, None)), "inconclusive"),
        (card(None), "inconclusive"),
    ],
)
def test_verdicts_of_a_card(after: GpuSample, verdict: str) -> None:
    """300 bytes before, 100 of them a stranger's (pid 5); 50 bytes of tolerance."""
    found = judge(card(300, (5, 100)), after, GONE, tolerance_bytes=TOLERANCE)
    assert found.verdict == verdict
    assert found.basis
    assert (found.baseline_bytes, found.after_exit_bytes, found.tolerance_bytes) == (300, after.used_bytes, TOLERANCE)


@pytest.mark.req("P8")
def test_a_process_that_is_still_there_has_given_nothing_back() -> None:
    assert judge(card(300), card(300), THERE, tolerance_bytes=TOLERANCE).verdict == "not_reclaimed"
    assert without_gpu(THERE).verdict == "not_reclaimed"
    assert without_gpu(THERE).exit_status == "signal 9 (SIGKILL)"


@pytest.mark.req("P8")
def test_without_a_card_the_death_of_the_process_is_what_counts() -> None:
    found = without_gpu(GONE)
    assert (found.verdict, found.process_gone, found.exit_status) == ("not_applicable", True, "exit 0")


def samples(*used: int) -> Iterator[GpuSample]:
    yield from (card(value) for value in used)
    while True:
        yield card(used[-1])


@pytest.mark.req("P8")
async def test_memory_that_comes_back_late_is_waited_for() -> None:
    source = samples(5_000, 3_000, 310)

    async def take() -> GpuSample:
        return next(source)

    found, after = await watch_reclaim(card(300), take, GONE, tolerance_bytes=TOLERANCE, wait_s=5, interval_s=0.001)
    assert (found.verdict, after.used_bytes) == ("reclaimed", 310)


@pytest.mark.req("P8")
async def test_memory_that_does_not_come_back_ends_the_wait() -> None:
    source = samples(5_000)

    async def take() -> GpuSample:
        return next(source)

    found, _ = await watch_reclaim(card(300), take, GONE, tolerance_bytes=TOLERANCE, wait_s=0.03, interval_s=0.01)
    assert found.verdict == "not_reclaimed"
    assert found.after_exit_bytes == 5_000
    assert found.waited_ms <= 1_000
