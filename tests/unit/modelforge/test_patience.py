"""A wait outlasts a controller that is away for a while: bounded, and said once for each absence."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.operator import Operator
from bus.states import ProbeState
from modelforge.cli import patience as module
from modelforge.cli import session
from modelforge.cli.output import Progress
from modelforge.cli.patience import AWAY, NOT_SENT, Patience, patiently
from modelforge.cli.session import wait_until
from modelforge.cli.watching import follow_probe


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    monkeypatch.setattr(session, "REFRESH_S", 0.001)


class Subscription:
    async def unsubscribe(self) -> None:
        """Nothing to take off."""


class Client:
    """A connection that is there and tells nothing."""

    connected = True

    async def subscribe(self, subject: str, callback: object) -> Subscription:
        return Subscription()


class FakeOperator:
    client = Client()


def answers(*said: ErrorCode | str) -> Callable[[], Awaitable[str]]:
    """One thing after the other; the last one for ever."""
    waiting = list(said)

    async def ask() -> str:
        one = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(one, ErrorCode):
            raise ModelForgeError(one, "as it is")
        return one

    return ask


async def wait(read: Callable[[], Awaitable[str]], stream: io.StringIO, timeout_s: float | None = None) -> str:
    return await wait_until(
        cast("Operator", FakeOperator()),
        "probe",
        "prb-0000000001",
        read=read,
        done=lambda state: state == "completed",
        progress=Progress(stream, animate=False, passing=True),
        timeout_s=timeout_s,
    )


@pytest.mark.parametrize("code", sorted(AWAY))
async def test_a_wait_outlasts_an_absence_and_says_it_once(code: ErrorCode) -> None:
    stream = io.StringIO()
    assert await wait(answers("loading", code, code, code, "ready", "completed"), stream) == "completed"
    assert stream.getvalue() == f"the controller does not answer ({code}); trying for 60 s\n"


async def test_the_next_absence_is_another_one() -> None:
    stream, away = io.StringIO(), ErrorCode.NO_CONTROLLER
    await wait(answers(away, "loading", away, "completed"), stream)
    assert len(stream.getvalue().splitlines()) == 2


async def test_an_answer_is_not_waited_out() -> None:
    stream = io.StringIO()
    with pytest.raises(ModelForgeError) as caught:
        await wait(answers(ErrorCode.UNKNOWN_ID), stream)
    assert caught.value.code is ErrorCode.UNKNOWN_ID
    assert stream.getvalue() == ""


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1_000, 25))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    one = Patience(Progress(io.StringIO(), animate=False))
    asked: list[int] = []

    async def ask() -> None:
        asked.append(1)
        raise ModelForgeError(ErrorCode.NO_CONTROLLER, "nobody answers")

    with pytest.raises(ModelForgeError) as caught:
        await patiently(ask, one)
    assert caught.value.code is ErrorCode.NO_CONTROLLER
    assert len(asked) == 4  # at 0, 25, 50 and 75 s


async def test_a_wait_ends_in_its_own_time_also_without_a_controller() -> None:
    with pytest.raises(ModelForgeError) as caught:
        await wait(answers(ErrorCode.NO_CONTROLLER), io.StringIO(), timeout_s=0.05)
    assert caught.value.code in {ErrorCode.WAIT_TIMEOUT, ErrorCode.NO_CONTROLLER}


@pytest.mark.parametrize("told", [0, 1, 6])
async def test_a_phase_that_was_over_before_anybody_looked_is_told(told: int) -> None:
    names = ("queued", "preparing", "loading", "healthchecking", "ready", "unloading", "completed")

    def view(states: tuple[str, ...]) -> SimpleNamespace:
        marks = tuple(SimpleNamespace(state=name, attempt=1) for name in states)
        return SimpleNamespace(id="prb-1", state=ProbeState(states[-1]), attempt=1, timeline=marks)

    pictures = [view(names[:1]), view(names[:1]), view(names[:3]), view(names)]

    class Asked(FakeOperator):
        async def call(self, *_: object) -> SimpleNamespace:
            return pictures.pop(0)

    stream = io.StringIO()
    progress = Progress(stream, animate=False)
    await follow_probe(cast("Operator", Asked()), progress, "prb-1", timeout_s=None, told=told)
    lines = [line.split()[2].rstrip(",") for line in stream.getvalue().splitlines()]
    assert lines == list(names[told:])


async def test_what_may_not_happen_twice_is_not_repeated_after_a_timeout() -> None:
    one = Patience(Progress(io.StringIO(), animate=False), passing=NOT_SENT)
    with pytest.raises(ModelForgeError) as caught:
        await patiently(answers(ErrorCode.NO_CONTROLLER, ErrorCode.REQUEST_TIMEOUT, "done"), one)
    assert caught.value.code is ErrorCode.REQUEST_TIMEOUT
