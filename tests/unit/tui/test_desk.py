"""The desk on the bus: which verbs it calls, and what it says about itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bus import verbs
from bus.operator import Operator
from tests.support.pictures import probes
from tui.desk import BusDesk


class FakeOperator:
    """Notes what it is asked."""

    user = "ada"

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.closed = False

    async def call(self, verb: verbs.Verb[Any, Any], request: Any, *, timeout_s: float | None = None) -> Any:
        self.asked.append((verb.name, request))
        return probes()["prb-7k3m9q2xta"]

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("url", "context"),
    [
        ("nats://127.0.0.1:4222", "ada @ nats://127.0.0.1:4222"),
        ("nats://user:secret@host:4222", "ada @ host:4222"),
        ("\x1b[31mnats://h", "ada @ nats://h"),
    ],
)
def test_the_context_is_clean_and_holds_no_secret(url: str, context: str) -> None:
    assert BusDesk(cast("Operator", FakeOperator()), url).context == context


async def test_each_question_is_one_verb() -> None:
    operator = FakeOperator()
    desk = BusDesk(cast("Operator", operator), "nats://h")
    await desk.show("prb-a")
    await desk.log("prb-a", 2)
    await desk.cancel("prb-a", "too slow")
    await desk.close()
    assert [name for name, _ in operator.asked] == ["probes.show", "probes.log", "probes.cancel"]
    assert operator.asked[1][1].attempt == 2
    assert operator.asked[2][1].reason == "too slow"
    assert operator.closed
