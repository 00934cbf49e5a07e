"""The benchmark's arithmetic; the rows themselves are run by `make bench`, never by the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__, measure, report


async def runs_in_turns(rounds: int) -> tuple[list[str], dict[str, list[float]]]:
    called: list[str] = []

    def contender(name: str, seconds: float) -> measure.Contender:
        async def run() -> float:
            called.append(name)
            return seconds

        return run

    runs = {measure.BASELINE: contender("baseline", 2.0), "a": contender("a", 1.0), "b": contender("b", 3.0)}
    return called, await measure.in_turns(runs, rounds, lambda _: None)


async def test_contenders_run_in_turns_and_each_goes_first_once() -> None:
    """A machine that grows warm or busy would else punish the one that always comes last."""
    called, seconds = await runs_in_turns(3)

    assert called == ["baseline", "a", "b", "a", "b", "baseline", "b", "baseline", "a"]
    assert seconds == {"baseline": [2.0] * 3, "a": [1.0] * 3, "b": [3.0] * 3}


async def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        await runs_in_turns(2)


def test_a_row_is_the_median_of_the_rounds_ratios() -> None:
    row = measure.row("probe", [1.0, 2.0, 9.0], [2.0, 2.0, 10.0], reach=0.9)

    assert (row.value, row.baseline, row.ratio, row.ok) == (2.0, 2.0, 0.9, True)
    assert row.spread == pytest.approx((1.0 - 0.5) / 0.9)


def test_a_row_beyond_its_reach_is_not_ok() -> None:
    assert not measure.row("probe", [3.0] * 3, [2.0] * 3, reach=1.1).ok


def test_a_bounded_row_is_judged_by_its_own_value() -> None:
    """Whatever the baseline took: a slow machine is no excuse for a screen that waits."""
    fast, slow = (measure.bounded_row("assess", [s] * 3, [0.001] * 3, bound_s=0.05) for s in (0.04, 0.06))

    assert (fast.ok, slow.ok) == (True, False)
    assert (fast.unit, fast.bound, fast.reach) == ("ms", 50.0, None)
    assert fast.value == pytest.approx(40.0)
    assert fast.ratio == pytest.approx(40.0)
    assert "50 ms" in report.table([fast])


async def test_only_the_named_parts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rows(rounds: int, scratch: Path) -> list[measure.Row]:
        return [measure.row("one", [1.0] * rounds, [1.0] * rounds, reach=1.0)]

    monkeypatch.setattr(__main__, "PARTS", {"one": rows, "other": rows})

    assert len(await __main__.measured(["one"], 3, tmp_path)) == 1
    assert len(await __main__.measured(["one", "other"], 3, tmp_path)) == 2


def test_the_written_rows_have_every_field(tmp_path: Path) -> None:
    row = measure.row("probe", [3.0] * 3, [2.0] * 3, reach=1.1)
    report.write(tmp_path / "results" / "latest.json", [row], 3)
    document = json.loads((tmp_path / "results" / "latest.json").read_text(encoding="utf-8"))

    assert document["rows"] == [
        {
            "name": "probe", "value": 3.0, "unit": "s", "baseline": 2.0, "ratio": 1.5, "reach": 1.1, "ok": False,
            "spread": 0.0, "bound": None,
        }
    ]  # fmt: skip


def test_the_table_says_which_row_missed() -> None:
    row = measure.row("probe", [3.0] * 3, [2.0] * 3, reach=1.1)

    assert report.table([row]).splitlines()[1].split() == [
        "probe",
        "3.00",
        "s",
        "2.00",
        "s",
        "1.500",
        "1.1",
        "0%",
        "MISSED",
    ]
