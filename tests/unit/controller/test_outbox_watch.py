"""A server that answers and stores nothing is named; one that is away is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bus.client import BusClient, StoredAck
from bus.errors import ErrorCode, ModelForgeError
from controller.outbox import DEGRADED_AFTER, Outbox
from controller.store.connection import Store
from observability.counters import Counters


class FullDisk:
    """A connection whose server answers a round trip while it is `there`, and stores only after it was `healed`."""

    def __init__(self) -> None:
        self.there, self.healed, self.connected = True, False, True

    async def publish_stored(self, *_: object, **__: object) -> StoredAck:
        if self.healed:
            return StoredAck(stream="MF_EVENTS", sequence=1, duplicate=False)
        raise ModelForgeError(ErrorCode.REQUEST_TIMEOUT, "no answer")

    async def round_trip(self) -> float:
        if not self.there:
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, "gone")
        return 0.001


async def tried(outbox: Outbox) -> None:
    with pytest.raises(ModelForgeError):
        await outbox.drain()


@pytest.mark.parametrize("there", [True, False])
async def test_unanswered_publishes_are_said_only_while_the_server_answers(tmp_path: Path, there: bool) -> None:
    client = FullDisk()
    client.there = there
    store = await Store.open(tmp_path / "ledger.db")
    try:
        outbox = Outbox(store, cast("BusClient", cast("Any", client)), Counters(), lambda: None)
        await store.write(lambda tx: tx.audit("node", "local", "changed", "test"))
        for _ in range(DEGRADED_AFTER - 1):
            await tried(outbox)
        assert outbox.degraded() == {}
        await tried(outbox)
        assert [word.split(":")[0] for word in outbox.degraded().values()] == (["degraded"] if there else [])
        client.healed = True
        await outbox.drain()
        assert outbox.degraded() == {}
    finally:
        await store.close()
