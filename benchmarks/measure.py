"""Interleaved measurement: contenders and their baseline in turns, so that a busy moment hits all of them alike.

A ratio is what travels between machines, not seconds. Each round runs the baseline and every contender once, the order
turned by one each time; a round gives each contender one ratio. The row's ratio is the median of those. A first round
is not counted: it brings files into the page cache and a template into memory, for the baseline as for the contender.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

BASELINE: Final = "baseline"
MIN_ROUNDS: Final = 3
# Beyond this the rounds disagree so much that their median says more of the machine than of the program.
MAX_SPREAD: Final = 0.5

Contender = Callable[[], Awaitable[float]]
"""Runs once; the seconds it took, so that it can leave its own preparation out."""
Verdict = Literal["ok", "missed", "unsteady", "shown"]
"""`unsteady`: the rounds differ too much to say one or the other. `shown`: a figure that promises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the tables and of the results.

    Attributes:
        name: what was measured.
        value: median of the contender, in `unit`.
        unit: of value, baseline and bound: `s` in a row of ratios, `ms` in one with a bound or without any promise.
        baseline: median of the baseline; `None` for a figure without one.
        ratio: median over the rounds of contender / baseline.
        reach: the ratio that is to be reached, at most; `None` where the value has a bound instead, or no promise.
        bound: what the value itself may be at most, in `unit`, whatever the baseline took.
        spread: largest minus smallest round, as a part of the median: of the ratios, or of the values in a `ms` row.
        verdict: was it reached?
        note: what a reader must know to believe the row, or nothing.
    """

    name: str
    value: float
    unit: Literal["s", "ms"]
    baseline: float | None = None
    ratio: float | None = None
    reach: float | None = None
    bound: float | None = None
    spread: float
    verdict: Verdict
    note: str = ""


def order(names: list[str], round_number: int) -> list[str]:
    """The names, turned by one with every round."""
    turn = round_number % len(names)
    return names[turn:] + names[:turn]


async def in_turns(runs: Mapping[str, Contender], rounds: int, tell: Callable[[str], None]) -> dict[str, list[float]]:
    """Run everything once without counting it, then `rounds` times in turns; name -> seconds of each counted round.

    Raises:
        ValueError: for fewer rounds than a median needs.
    """
    if rounds < MIN_ROUNDS:
        message = f"{rounds} rounds give no median; at least {MIN_ROUNDS}"
        raise ValueError(message)
    warm = {name: await run() for name, run in runs.items()}
    tell(f"warm-up, not counted: {_line(warm)}")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in order(list(runs), number):
            seconds[name].append(await runs[name]())
        tell(f"round {number + 1} of {rounds}: {_line({name: taken[-1] for name, taken in seconds.items()})}")
    return seconds


def _line(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {taken:.3f} s" for name, taken in seconds.items())


def row(name: str, seconds: list[float], baseline: list[float], reach: float | None, note: str = "") -> Row:
    """The row of one contender, judged by its ratio; without a reach it promises nothing."""
    ratios = _ratios(seconds, baseline)
    ratio, spread = statistics.median(ratios), _spread(ratios)
    return Row(
        name=name,
        value=statistics.median(seconds),
        unit="s",
        baseline=statistics.median(baseline),
        ratio=ratio,
        reach=reach,
        spread=spread,
        verdict=_verdict(spread, reached=None if reach is None else ratio <= reach),
        note=note,
    )


def bounded_row(name: str, seconds: list[float], baseline: list[float], bound_s: float) -> Row:
    """The row of one contender that must not take longer than `bound_s`, in milliseconds."""
    value, spread = statistics.median(seconds), _spread(seconds)
    return Row(
        name=name,
        value=value * 1_000,
        unit="ms",
        baseline=statistics.median(baseline) * 1_000,
        ratio=statistics.median(_ratios(seconds, baseline)),
        bound=bound_s * 1_000,
        spread=spread,
        verdict=_verdict(spread, reached=value <= bound_s),
    )


def shown_row(name: str, seconds: list[float]) -> Row:
    """A figure beside the others, in milliseconds, that promises nothing: a part of a row, or a fixed cost."""
    value = statistics.median(seconds) * 1_000
    return Row(name=name, value=value, unit="ms", spread=_spread(seconds), verdict="shown")


def _verdict(spread: float, *, reached: bool | None) -> Verdict:
    """Neither praise nor blame for a row whose rounds disagree: both would be chance."""
    if spread > MAX_SPREAD:
        return "unsteady"
    if reached is None:
        return "shown"
    return "ok" if reached else "missed"


def _ratios(seconds: list[float], baseline: list[float]) -> list[float]:
    return [mine / theirs for mine, theirs in zip(seconds, baseline, strict=True)]


def _spread(values: list[float]) -> float:
    """How far the rounds lie apart, as a part of their median."""
    return (max(values) - min(values)) / statistics.median(values)
