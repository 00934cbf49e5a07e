"""What nodes say of themselves, as it is published: late words, words of superseded boots, poison."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from nats.aio.client import Client
from nats.aio.msg import Msg

from bus import subjects
from bus.codec import encode
from controller.inventory import InventoryIntake
from controller.loops import Faults
from observability.vitals import Loop
from tests.support.ledger import NODE, Lab, inventory, open_lab


async def say(intake: InventoryIntake, **fields: Any) -> None:
    data = encode(inventory(**fields))
    await intake.on_message(Msg(_client=cast("Client", None), subject=subjects.inventory(NODE), data=data))


async def lines(lab: Lab) -> list[str]:
    return [row["what"] for row in await lab.rows("SELECT what FROM audit ORDER BY sequence")]


async def test_a_boot_whose_word_came_late_is_still_told_of_when_it_is_superseded(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        intake = InventoryIntake(lab.store, Faults())
        await lab.hello(inventory(sequence=5))
        await say(intake, sequence=3)
        assert await lines(lab) == ["admitted"], "late is no refusal worth a line"
        await lab.hello(inventory(boot_id="boot2"), replaces="boot1")
        await say(intake, sequence=6)
        assert await lines(lab) == ["admitted", "admitted", "inventory-refused"]
        await say(intake, sequence=7)
        assert await lines(lab) == ["admitted", "admitted", "inventory-refused"], "each boot once, not each word"


async def test_a_poisoned_word_is_counted_and_the_next_one_is_heard(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        faults = Faults()
        intake = InventoryIntake(lab.store, faults)
        await lab.hello()
        poison = Msg(_client=cast("Client", None), subject=subjects.inventory(NODE), data=b"{")
        await intake.on_message(poison)
        assert faults.counts[Loop.INVENTORY] == 1
        await say(intake, sequence=2, agent_version="0.2.0")
        assert await lines(lab) == ["admitted", "changed"]
