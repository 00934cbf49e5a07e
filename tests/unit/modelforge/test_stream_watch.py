"""A server that stores nothing is started again: not for one slow moment, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from bus.errors import ErrorCode, ModelForgeError
from modelforge import stream_watch
from modelforge.stream_watch import MAX_RESTARTS, StreamWatch

OK = {"MF_JOBS": "ok"}
DEGRADED = {"MF_JOBS": "degraded: 3 stored messages in a row were not answered"}


class Seen:
    def __init__(self) -> None:
        self.restarts = 0
        self.lines: list[str] = []

    def restart(self) -> None:
        self.restarts += 1


def watch(seen: Seen, *answers: Mapping[str, str] | None) -> StreamWatch:
    waiting = list(answers)

    async def ask() -> Mapping[str, str]:
        if not waiting:
            raise asyncio.CancelledError
        answer = waiting.pop(0)
        if answer is None:
            raise ModelForgeError(ErrorCode.NO_CONTROLLER, "restarting")
        return answer

    return StreamWatch(ask, seen.restart, seen.lines.append)


@pytest.mark.parametrize(
    ("answers", "restarts"),
    [
        ((OK, OK, OK), 0),
        ((DEGRADED, OK, DEGRADED, OK), 0),
        ((DEGRADED, None, DEGRADED), 0),
        (({"MF_JOBS": "drift: storage"},) * 4, 0),
        ((OK, DEGRADED, DEGRADED), 1),
        ((DEGRADED,) * 4, 2),
    ],
)
async def test_a_restart_needs_two_bad_answers_in_a_row(
    answers: tuple[Mapping[str, str] | None, ...], restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_watch, "ASK_EVERY_S", 0.0)
    seen = Seen()
    with pytest.raises(asyncio.CancelledError):
        await watch(seen, *answers).run()
    assert (seen.restarts, len(seen.lines)) == (restarts, restarts)


def test_restarts_have_an_end_that_is_told_once() -> None:
    seen = Seen()
    one = watch(seen)
    for _ in range(50):
        one.look(DEGRADED)
    assert seen.restarts == MAX_RESTARTS
    assert len(seen.lines) == MAX_RESTARTS + 1
    assert "make room" in seen.lines[-1]
