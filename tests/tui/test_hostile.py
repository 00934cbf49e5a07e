"""Names, messages and logs that somebody else wrote: nothing of them may reach the terminal as control or markup."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.gates import ProbeView
from tests.support.pictures import FakeDesk, picture, probes
from tests.support.screens import press, running, text_of

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[31m[/bold][link=x]\r\n\u202egpj\u2066\x9b31m\x00\tend"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def poisoned(value: Any) -> Any:
    """Every text of a record with an attack in it; enums, literals of the state table and times stay."""
    if type(value) is str:
        return value if value in {"healthy", "not_applicable", "not_reclaimed", "template", "online"} else value + EVIL
    if isinstance(value, tuple):
        return tuple(poisoned(item) for item in value)
    if isinstance(value, dict):
        return {poisoned(key): poisoned(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name != "kind"]
        return msgspec.structs.replace(value, **{name: poisoned(getattr(value, name)) for name in names})
    return value


def poisoned_desk() -> FakeDesk:
    views: dict[str, ProbeView] = {view.id: view for view in (poisoned(item) for item in probes().values())}
    nodes = {name + EVIL: poisoned(node) for name, node in picture().nodes.items()}
    state = picture(probes=views, nodes=nodes, last_error=EVIL)
    return FakeDesk(states=[state], views=views, log_text=f"{EVIL}\n" * 50, context="ada")


def check(text: str) -> None:
    assert CONTROL.search(text.replace("\n", "")) is None
    assert "[/bold][link=x]" in text or "[/bold]" not in text  # brackets are text, not markup


async def test_no_control_reaches_the_screen() -> None:
    async with running(poisoned_desk(), (100, 30)) as (app, pilot):
        check(text_of(app))
        for keys in (
            ["j"] * 4,
            ["j"],
            ["enter"],
            ["pagedown"],
            ["escape", "d"],
            ["d", "y"],
            ["l"],
            ["escape", "g", "x"],
        ):
            await press(pilot, *keys)
            check(text_of(app))
        assert "[/bold]" in text_of(app)


async def test_hostile_refusals_and_clipboard() -> None:
    desk = poisoned_desk()
    desk.refuse = ModelForgeError(ErrorCode.UNKNOWN_ID, EVIL)
    async with running(desk, (120, 40)) as (app, pilot):
        await press(pilot, "l")
        check(text_of(app))
        await press(pilot, "escape", "y")
        assert CONTROL.search(app.clipboard) is None
        check(text_of(app))


async def test_a_code_of_a_newer_version_is_shown_as_it_came() -> None:
    failure = Failure(code="COSMIC_RAY", message="a bit was flipped")
    views = {
        key: msgspec.structs.replace(view, failure=failure)
        for key, view in picture().probes.items()
        if key == "prb-3h5j7k9m1n"
    }
    async with running(FakeDesk(states=[picture(probes=views)], views=views)) as (app, _):
        assert "COSMIC_RAY" in text_of(app)
        assert "does not know the code" in text_of(app)
