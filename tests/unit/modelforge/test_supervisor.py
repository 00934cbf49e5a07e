"""The supervisor's decisions, with parts that live and die on command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import ErrorCode, ModelForgeError
from modelforge import supervisor as module
from modelforge.lifeline import exit_text
from modelforge.supervisor import RestartBudget, Supervisor, last_line


def test_the_budget_doubles_the_wait_and_ends() -> None:
    budget = RestartBudget(max_restarts=5, window_s=60)
    assert [budget.next_delay_s(second) for second in range(6)] == [0.25, 0.5, 1.0, 2.0, 4.0, None]
    assert budget.used == 5


def test_old_restarts_are_forgotten() -> None:
    budget = RestartBudget(max_restarts=1, window_s=60)
    assert budget.next_delay_s(0) == 0.25
    assert budget.next_delay_s(60) is None
    assert budget.next_delay_s(61) == 0.25


@given(st.lists(st.floats(0, 10), max_size=40), st.integers(0, 6))
def test_never_more_than_the_limit_within_any_window(gaps: list[float], limit: int) -> None:
    budget, now, granted = RestartBudget(max_restarts=limit, window_s=20), 0.0, []
    for gap in gaps:
        now += gap
        if budget.next_delay_s(now) is not None:
            granted.append(now)
    for start in granted:
        assert sum(start <= at <= start + 20 for at in granted) <= limit


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit 0"), (3, "exit 3"), (-9, "signal 9 (SIGKILL)"), (-99, "signal 99"), (None, "still running")],
)
def test_ends_are_told_in_words(code: int | None, words: str) -> None:
    assert exit_text(code) == words


class FakePart:
    """A part whose death the test decides."""

    def __init__(self, name: str, folder: Path, *, is_ready: bool = True) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self.log_path.write_text("first\nlast words\n")
        self.death = asyncio.Event()
        self.starts = 0
        self.stops: list[str] = []
        self.refuse_start = False
        self._is_ready = is_ready

    @property
    def pid(self) -> int | None:
        return None if self.death.is_set() else 1

    def start(self) -> None:
        self.starts += 1
        if self.refuse_start:
            raise ModelForgeError(ErrorCode.PORT_IN_USE, "taken")
        self.death.clear()

    async def ready(self) -> None:
        if not self._is_ready:
            await asyncio.Event().wait()

    async def stop(self, limit_s: float) -> None:
        self.stops.append("stop")

    def kill(self) -> None:
        self.stops.append("kill")

    def ended(self) -> str:
        return "exit 7"


@pytest.fixture
def _deaths_on_command(monkeypatch: pytest.MonkeyPatch) -> None:
    async def died(part: FakePart) -> None:
        await part.death.wait()

    monkeypatch.setattr(module, "_died", died)
    monkeypatch.setattr(module, "BACKOFF_FIRST_S", 0.0)


def supervise(parts: list[FakePart], told: list[str], *, max_restarts: int = 2, ready_s: float = 5.0) -> Supervisor:
    return Supervisor(parts, max_restarts=max_restarts, window_s=60, ready_s=ready_s, stop_s=1, tell=told.append)


async def nothing(_: object) -> None:
    """What is done when a part has started: nothing here."""


@pytest.mark.usefixtures("_deaths_on_command")
async def test_parts_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    parts, order = [FakePart("a", tmp_path), FakePart("b", tmp_path)], []

    async def started(part: module.Part) -> None:
        order.append(part.name)

    supervisor = supervise(parts, [])
    await supervisor.start(started)
    await supervisor.stop()
    assert order == ["a", "b"]
    assert [part.stops for part in parts] == [["stop"], ["stop"]]


@pytest.mark.usefixtures("_deaths_on_command")
async def test_a_death_before_readiness_is_told_with_the_last_words_of_the_log(tmp_path: Path) -> None:
    part = FakePart("controller", tmp_path, is_ready=False)
    starting = asyncio.ensure_future(supervise([part], []).start(nothing))
    await asyncio.sleep(0)
    part.death.set()
    with pytest.raises(ModelForgeError) as caught:
        await starting
    assert caught.value.code is ErrorCode.SERVER_START_FAILED
    assert "controller ended before it was ready (exit 7)" in caught.value.message
    assert caught.value.context == {"log": str(part.log_path), "last": "last words"}


@pytest.mark.usefixtures("_deaths_on_command")
async def test_a_part_that_never_gets_ready_is_told(tmp_path: Path) -> None:
    part = FakePart("agent", tmp_path, is_ready=False)
    with pytest.raises(ModelForgeError, match=r"agent not ready in 0\.01 s"):
        await supervise([part], [], ready_s=0.01).start(nothing)


@pytest.mark.usefixtures("_deaths_on_command")
async def test_a_dead_part_is_started_again_until_its_budget_is_spent(tmp_path: Path) -> None:
    part = FakePart("agent", tmp_path)
    told: list[str] = []
    part.refuse_start = True
    part.death.set()
    with pytest.raises(ModelForgeError, match="agent ended again after 2 restarts") as caught:
        await supervise([part], told).run()
    assert caught.value.code is ErrorCode.SERVER_START_FAILED
    assert part.starts == 2
    assert told[0].startswith("agent ended (exit 7); restart 1 of 2")
    assert told[1] == "agent did not start: PORT_IN_USE: taken"


@pytest.mark.usefixtures("_deaths_on_command")
async def test_a_restarted_part_runs_on(tmp_path: Path) -> None:
    part, again = FakePart("agent", tmp_path), asyncio.Event()
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if "started again" in text:
            again.set()

    supervisor = Supervisor([part], max_restarts=2, window_s=60, ready_s=5, stop_s=1, tell=tell)
    running = asyncio.ensure_future(supervisor.run())
    part.death.set()
    await asyncio.wait_for(again.wait(), 5)
    assert told[1] == "agent started again, pid 1"
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_the_last_line_of_a_log_is_cleaned(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_line(log) == ""
    log.write_text("one\n\x1b[31mtwo\x1b[0m\n")
    assert last_line(log) == "two"
