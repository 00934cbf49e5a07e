"""Was the memory given back? The verdict is a pure function of samples; the waiting is apart (spec P8).

Memory of a card comes back only after the child was reaped, and a moment later. So the card is read until it is back
at the baseline or the wait is over, and what other processes did meanwhile is part of the verdict.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from bus.messages.evidence import GpuSample, Reclaim

INTERVAL_S: Final = 0.2

Verdict = Literal["reclaimed", "not_reclaimed", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known of the child's end: is it reaped with its whole group, and how did it end?"""

    process_gone: bool
    exit_status: str


def without_gpu(ending: Ending) -> Reclaim:
    """The verdict of a probe that used no card: the kernel takes everything back when the process dies."""
    if ending.process_gone:
        return Reclaim(
            verdict="not_applicable",
            basis="no GPU was used; the process is gone",
            process_gone=True,
            exit_status=ending.exit_status,
        )
    return Reclaim(
        verdict="not_reclaimed",
        basis="the process or one of its group is still there",
        process_gone=False,
        exit_status=ending.exit_status,
    )


def judge(
    baseline: GpuSample, after: GpuSample, ending: Ending, *, tolerance_bytes: int, waited_ms: int = 0
) -> Reclaim:
    """The verdict for one card.

    Args:
        baseline: the card before the child was started.
        after: the card after the child was reaped.
        ending: how the child ended.
        tolerance_bytes: how far above the baseline still counts as given back.
        waited_ms: how long after the end `after` was taken.

    Returns:
        `reclaimed`; `not_reclaimed`; or `inconclusive` when a figure is missing or another process grew by as much
        as is missing, which then may be all of it.
    """
    verdict, basis = _verdict(baseline, after, ending, tolerance_bytes)
    return Reclaim(
        verdict=verdict,
        basis=basis,
        baseline_bytes=baseline.used_bytes,
        after_exit_bytes=after.used_bytes,
        tolerance_bytes=tolerance_bytes,
        waited_ms=waited_ms,
        process_gone=ending.process_gone,
        exit_status=ending.exit_status,
    )


def _verdict(baseline: GpuSample, after: GpuSample, ending: Ending, tolerance_bytes: int) -> tuple[Verdict, str]:
    if not ending.process_gone:
        return "not_reclaimed", "the process or one of its group is still there"
    if baseline.used_bytes is None or after.used_bytes is None:
        return "inconclusive", "the used memory of the card could not be read"
    excess_bytes = after.used_bytes - baseline.used_bytes - tolerance_bytes
    if excess_bytes <= 0:
        return "reclaimed", "used memory is back at the baseline, within the tolerance"
    if after.process_bytes:
        return "not_reclaimed", "the driver still lists a process of the probe"
    grown = grown_bytes(baseline, after)
    if grown is None:
        return "inconclusive", "another process came to the card whose memory the driver does not tell"
    if grown >= excess_bytes:
        return "inconclusive", "other processes on the card grew by as much meanwhile"
    return "not_reclaimed", "used memory stayed above the baseline, and no other process explains it"


def grown_bytes(baseline: GpuSample, after: GpuSample) -> int | None:
    """By how much the foreign processes grew together; `None` when one that is new or grew does not tell."""
    before = {process.pid: process.used_bytes for process in baseline.foreign}
    total = 0
    for process in after.foreign:
        if process.used_bytes is None:
            if process.pid not in before:
                return None
            continue
        total += max(0, process.used_bytes - (before.get(process.pid) or 0))
    return total


async def watch_reclaim(
    baseline: GpuSample,
    take: Callable[[], Awaitable[GpuSample]],
    ending: Ending,
    *,
    tolerance_bytes: int,
    wait_s: float,
    interval_s: float = INTERVAL_S,
) -> tuple[Reclaim, GpuSample]:
    """Read the card until the memory is back or `wait_s` is over; the verdict and the reading it rests on."""
    begin = time.monotonic()
    while True:
        after = await take()
        waited_s = time.monotonic() - begin
        verdict = judge(baseline, after, ending, tolerance_bytes=tolerance_bytes, waited_ms=round(waited_s * 1_000))
        if verdict.verdict == "reclaimed" or waited_s + interval_s > wait_s:
            return verdict, after
        await asyncio.sleep(interval_s)
