"""The digests of a running scan reach the cache, in time and whatever the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from node_agent.artifact_root import Stamp
from node_agent.digest_keeper import DigestKeeper
from node_agent.hash_cache import HashCache, read
from tests.support.waiting import until


def digests(*numbers: int) -> dict[Stamp, str]:
    return {Stamp(1, number, 5, 6, 7): f"{number:064x}" for number in numbers}


async def test_what_is_offered_is_written_while_the_scan_runs_and_the_rest_at_its_end(tmp_path: Path) -> None:
    async with DigestKeeper(HashCache(tmp_path), interval_s=1_000.0) as keeper:
        keeper.offer(digests(1))
        await until(lambda: read(tmp_path), "the first")
        keeper.offer(digests(2))
        keeper.offer(digests(3))
        assert read(tmp_path) == digests(1)
    assert read(tmp_path) == digests(1, 2, 3)


async def test_it_writes_again_after_its_interval(tmp_path: Path) -> None:
    async with DigestKeeper(HashCache(tmp_path), interval_s=0.05) as keeper:
        keeper.offer(digests(1))
        await until(lambda: read(tmp_path) == digests(1), "the first")
        keeper.offer(digests(2))
        await until(lambda: read(tmp_path) == digests(1, 2), "the next")


async def test_a_write_that_is_under_way_at_the_end_is_waited_for(tmp_path: Path) -> None:
    go_on, began = threading.Event(), threading.Event()

    class Slow(HashCache):
        def remember(self, digests: Mapping[Stamp, str]) -> None:
            began.set()
            assert go_on.wait(20.0)
            super().remember(digests)

    async def scan() -> None:
        async with DigestKeeper(Slow(tmp_path)) as keeper:
            keeper.offer(digests(1))
            await until(began.is_set, "the write")
            asyncio.get_running_loop().call_later(0.2, go_on.set)
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await scan()
    assert read(tmp_path) == digests(1)
