"""Interleaved measurement: contenders and their baseline in turns, so that a busy moment hits all of them alike.

A ratio is what travels between machines, not seconds. Each round runs the baseline and every contender once, the order
turned by one each time; a round gives each contender one ratio. The row's ratio is the median of those.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

BASELINE: Final = "baseline"
MIN_ROUNDS: Final = 3

Contender = Callable[[], Awaitable[float]]
"""Runs once; the seconds it took, so that it can leave its own preparation out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table and of `results/latest.json`.

    Attributes:
        name: what was measured.
        value: median of the contender, in `unit`.
        unit: of value and baseline.
        baseline: median of the baseline.
        ratio: median over the rounds of contender / baseline.
        reach: the ratio that is to be reached, at most; `None` where the value has a bound instead.
        ok: was it reached?
        spread: largest minus smallest ratio of a round, as a part of `ratio`.
        bound: what the value itself may be at most, in `unit`, whatever the baseline took.
    """

    name: str
    value: float
    unit: str
    baseline: float
    ratio: float
    reach: float | None
    ok: bool
    spread: float
    bound: float | None = None


def order(names: list[str], round_number: int) -> list[str]:
    """The names, turned by one with every round."""
    turn = round_number % len(names)
    return names[turn:] + names[:turn]


async def in_turns(runs: Mapping[str, Contender], rounds: int, tell: Callable[[str], None]) -> dict[str, list[float]]:
    """Run everything `rounds` times in turns; name -> seconds of each round.

    Raises:
        ValueError: for fewer rounds than a median needs.
    """
    if rounds < MIN_ROUNDS:
        message = f"{rounds} rounds give no median; at least {MIN_ROUNDS}"
        raise ValueError(message)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in order(list(runs), number):
            seconds[name].append(await runs[name]())
        line = ", ".join(f"{name} {taken[-1]:.3f} s" for name, taken in seconds.items())
        tell(f"round {number + 1} of {rounds}: {line}")
    return seconds


def row(name: str, seconds: list[float], baseline: list[float], reach: float) -> Row:
    """The row of one contender, judged by its ratio."""
    ratio, spread = _ratio(seconds, baseline)
    return Row(
        name=name,
        value=statistics.median(seconds),
        unit="s",
        baseline=statistics.median(baseline),
        ratio=ratio,
        reach=reach,
        ok=ratio <= reach,
        spread=spread,
    )


def bounded_row(name: str, seconds: list[float], baseline: list[float], bound_s: float) -> Row:
    """The row of one contender that must not take longer than `bound_s`, shown in milliseconds."""
    ratio, spread = _ratio(seconds, baseline)
    value = statistics.median(seconds)
    return Row(
        name=name,
        value=value * 1_000,
        unit="ms",
        baseline=statistics.median(baseline) * 1_000,
        ratio=ratio,
        reach=None,
        ok=value <= bound_s,
        spread=spread,
        bound=bound_s * 1_000,
    )


def _ratio(seconds: list[float], baseline: list[float]) -> tuple[float, float]:
    """The median ratio, and its spread."""
    ratios = [mine / theirs for mine, theirs in zip(seconds, baseline, strict=True)]
    ratio = statistics.median(ratios)
    return ratio, (max(ratios) - min(ratios)) / ratio
