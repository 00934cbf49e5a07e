"""The benchmark's arithmetic and its words; the rows themselves are run by `make bench`, never by the tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import __main__, assess, measure, report, scan
from tests.support.ledger import model_files, open_lab

REPOSITORY = Path(__file__).resolve().parents[2]
OK = measure.row("steady", [1.0] * 3, [1.0] * 3, reach=1.0)
MISSED = measure.row("slow", [3.0] * 3, [2.0] * 3, reach=1.1)
UNSTEADY = measure.row("wild", [1.0, 2.0, 3.0], [4.0] * 3, reach=1.1)


async def runs_in_turns(rounds: int) -> tuple[list[str], dict[str, list[float]]]:
    called: list[str] = []

    def contender(name: str, seconds: float) -> measure.Contender:
        async def run() -> float:
            called.append(name)
            return seconds

        return run

    runs = {measure.BASELINE: contender("baseline", 2.0), "a": contender("a", 1.0), "b": contender("b", 3.0)}
    return called, await measure.in_turns(runs, rounds, lambda _: None)


def cold_at_first() -> measure.Contender:
    left = [9.0, 1.0, 1.0, 1.0]

    async def run() -> float:
        return left.pop(0)

    return run


async def test_contenders_run_in_turns_and_each_goes_first_once() -> None:
    """A machine that grows warm or busy would else punish the one that always comes last."""
    called, seconds = await runs_in_turns(3)

    assert called[3:] == ["baseline", "a", "b", "a", "b", "baseline", "b", "baseline", "a"]
    assert seconds == {"baseline": [2.0] * 3, "a": [1.0] * 3, "b": [3.0] * 3}


async def test_the_first_run_of_each_is_not_counted() -> None:
    """The baseline, too, would else pay for the files that it reads from the disk, and we would look fast."""
    runs = {name: cold_at_first() for name in (measure.BASELINE, "a")}

    assert await measure.in_turns(runs, 3, lambda _: None) == {measure.BASELINE: [1.0] * 3, "a": [1.0] * 3}


async def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        await runs_in_turns(2)


def test_a_row_is_the_median_of_the_rounds_ratios() -> None:
    row = measure.row("probe", [1.0, 2.0, 9.0], [1.25, 2.0, 10.0], reach=0.9)

    assert (row.value, row.baseline, row.ratio, row.verdict) == (2.0, 2.0, 0.9, "ok")
    assert row.spread == pytest.approx((1.0 - 0.8) / 0.9)


def test_a_row_beyond_its_reach_is_missed() -> None:
    assert MISSED.verdict == "missed"


@pytest.mark.parametrize("reach", [1.1, 0.1, None])
def test_a_row_whose_rounds_disagree_has_no_verdict(reach: float | None) -> None:
    """Far below its reach or far beyond: the next run may say the opposite."""
    row = measure.row("probe", [1.0, 2.0, 3.0], [4.0] * 3, reach=reach)

    assert (row.spread, row.verdict) == (1.0, "unsteady")


def test_a_row_without_a_reach_only_shows() -> None:
    assert measure.row("scan", [3.0] * 3, [2.0] * 3, reach=None).verdict == "shown"


def test_a_bounded_row_is_judged_by_its_own_value() -> None:
    """Whatever the baseline took: a slow machine is no excuse for a screen that waits."""
    fast, slow = (measure.bounded_row("assess", [s] * 3, [0.001] * 3, bound_s=0.05) for s in (0.04, 0.06))

    assert (fast.verdict, slow.verdict) == ("ok", "missed")
    assert (fast.unit, fast.bound, fast.reach) == ("ms", 50.0, None)
    assert fast.value == pytest.approx(40.0)
    assert fast.ratio == pytest.approx(40.0)
    assert "50 ms" in report.tables([fast], 3)


def test_a_bounded_row_is_unsteady_by_its_own_value() -> None:
    """Its baseline may be as unsteady as it likes; it is not judged by it."""
    wild, calm = [0.01, 0.02, 0.03], [0.02] * 3

    assert measure.bounded_row("assess", wild, wild, bound_s=0.05).verdict == "unsteady"
    assert measure.bounded_row("assess", calm, wild, bound_s=0.05).verdict == "ok"


@pytest.mark.parametrize(
    ("rows", "status"),
    [([OK], 0), ([OK, UNSTEADY], __main__.EXIT_UNSTEADY), ([UNSTEADY, MISSED], 1), ([OK, MISSED], 1)],
)
def test_a_noisy_machine_fails_aloud_and_otherwise_than_a_slow_program(rows: list[measure.Row], status: int) -> None:
    assert __main__.status(rows) == status


async def test_only_the_named_parts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rows(rounds: int, scratch: Path) -> list[measure.Row]:
        return [measure.row("one", [1.0] * rounds, [1.0] * rounds, reach=1.0)]

    monkeypatch.setattr(__main__, "PARTS", {"one": rows, "other": rows})

    assert len(await __main__.measured(["one"], 3, tmp_path)) == 1
    assert len(await __main__.measured(["one", "other"], 3, tmp_path)) == 2


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the results; every part gives the steady row until a test says otherwise."""
    monkeypatch.setattr(__main__, "LAST", tmp_path / "last-run.json")
    monkeypatch.setattr(__main__, "KEPT", tmp_path / "latest.json")
    give(monkeypatch, [OK])
    return tmp_path


def give(monkeypatch: pytest.MonkeyPatch, rows: Sequence[measure.Row]) -> None:
    async def part(_rounds: int, _scratch: Path) -> list[measure.Row]:
        return list(rows)

    monkeypatch.setattr(__main__, "PARTS", {"one": part})


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_changes_no_tracked_file(results: Path) -> None:
    assert __main__.main([]) == 0
    assert written(results) == ["last-run.json"]


def test_git_ignores_what_a_run_writes() -> None:
    asked = ["git", "-C", str(REPOSITORY), "check-ignore", "--quiet"]
    if not (REPOSITORY / ".git").exists():
        pytest.skip("an unpacked source without a repository")

    assert subprocess.run([*asked, str(__main__.LAST)], check=False).returncode == 0
    assert subprocess.run([*asked, str(__main__.KEPT)], check=False).returncode == 1


def test_the_tracked_results_are_kept_on_demand(results: Path) -> None:
    assert __main__.main(["--keep"]) == 0
    assert written(results) == ["last-run.json", "latest.json"]


def test_unsteady_rows_are_never_kept(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, [OK, UNSTEADY])

    assert __main__.main(["--keep"]) == __main__.EXIT_UNSTEADY
    assert written(results) == ["last-run.json"]
    assert "latest.json stays as it was" in capsys.readouterr().err


@pytest.mark.usefixtures("results")
def test_a_part_alone_is_never_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        __main__.main(["--keep", "one"])

    assert "only of all parts" in capsys.readouterr().err


def test_the_written_rows_have_every_field(tmp_path: Path) -> None:
    report.write(tmp_path / "results" / "latest.json", [MISSED], 3)
    document = json.loads((tmp_path / "results" / "latest.json").read_text(encoding="utf-8"))

    assert document["rows"] == [
        {
            "name": "slow", "value": 3.0, "unit": "s", "baseline": 2.0, "ratio": 1.5, "reach": 1.1, "bound": None,
            "spread": 0.0, "verdict": "missed", "note": "",
        }
    ]  # fmt: skip


def test_the_table_says_which_row_missed_and_which_cannot_be_judged() -> None:
    lines = report.tables([MISSED, UNSTEADY], 3).splitlines()

    assert lines[-2].split() == ["slow", "3.00", "s", "2.00", "s", "1.500", "1.1", "0%", "MISSED"]
    assert lines[-1].endswith("100%    unsteady: run again on a quiet machine")


def test_ratios_and_milliseconds_stand_in_tables_of_their_own() -> None:
    part = measure.shown_row("part", [0.002] * 3)
    head, ratios, times = report.tables([part, OK], 3).split("\n\n")

    assert [line.split()[0] for line in ratios.splitlines()] == ["ratios,", "steady"]
    assert [line.split()[0] for line in times.splitlines()] == ["times,", "part"]
    assert " ms" not in ratios
    for word in ("ratio", "reach", "bound", "spread", "does not count, then 3"):
        assert word in head


def test_a_note_stands_below_the_tables() -> None:
    row = measure.row("scan", [1.0] * 3, [1.0] * 3, reach=None, note="Why it promises nothing.")

    assert report.tables([OK, row], 3).splitlines()[-1] == "scan: Why it promises nothing."


def test_the_largest_files_go_to_different_calls_of_a_baseline() -> None:
    """One call with all of them would make the baseline slow, and us look fast."""
    files = [Path(f"{number:04}") for number in range(1_004)]
    given, per_call = scan.dealt(files, 16)

    assert sorted(given) == files
    assert -(-len(given) // per_call) == 16
    assert len({given.index(large) // per_call for large in files[:4]}) == 4


def test_without_openssl_the_promised_baseline_stands_alone() -> None:
    seconds = {name: [1.0] * 3 for name in ("sha256sum", "scan", "tiny scan")}
    with_it = {**seconds, **{name: [1.0] * 3 for name in ("openssl", "large openssl", "large scan")}}

    assert [row.reach for row in scan.judged(seconds)] == [scan.REACH, None]
    assert [row.reach for row in scan.judged(with_it)] == [scan.REACH, None, scan.REACH, None]


async def test_the_parts_of_an_assessment_are_timed_where_it_really_goes(tmp_path: Path) -> None:
    clock = assess.Clock()
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan(model_files())
        await lab.profile()
        with clock.on_the_gate():
            await lab.assess(digest)

    parts = assess.parts_of(9.0, clock.take())
    assert sum(parts.values()) == pytest.approx(9.0)
    assert all(seconds > 0 for seconds in parts.values())
    assert clock.take() == {}
