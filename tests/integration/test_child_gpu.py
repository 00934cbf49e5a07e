"""A child on a card of the fake NVML: what is measured while it lives, and what the verdict is when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.child.protocol import Isolated, Loaded, Prepared, Proceed
from bus.messages.evidence import GpuSample
from node_agent.measure.reclaim import Ending, watch_reclaim
from node_agent.worker import Child, ChildFactory, WorkerSettings
from tests.support.children import begin, faulty_model, profile
from tests.support.fake_nvml import FakeNvml

GIB, MIB = 1024**3, 1024**2
CARD = "GPU-fake-0"


@pytest.fixture
def card(tmp_path: Path) -> Iterator[FakeNvml]:
    fake = FakeNvml(tmp_path)
    fake.state(count=1, card0_total=24 * GIB, card0_used=300 * MIB)
    yield fake
    fake.close()


@pytest.fixture
async def factory() -> AsyncIterator[ChildFactory]:
    made = ChildFactory(WorkerSettings(test_double=True))
    yield made
    await made.close()


async def loaded_child(factory: ChildFactory, card: FakeNvml, tmp_path: Path) -> Child:
    """A child that "allocated" 2 GiB on the card while it loaded."""
    model = faulty_model(
        tmp_path / "model",
        {"stage": "load", "kind": "write_file", "amount": 2 * GIB, "text": str(card.folder / "procs" / "0_{pid}")},
    )
    # The place of the fake card is the child's scratch folder: it writes nowhere else.
    child = await begin(factory, model, card.folder, run=profile("faulty"), start_method="template")
    for expected in (Isolated, Prepared):
        assert isinstance(await child.receive(20), expected)
        await child.send(Proceed())
    assert isinstance(await child.receive(20), Loaded)
    return child


async def verdict(card: FakeNvml, child: Child, baseline: GpuSample, status: str) -> str:
    async def take() -> GpuSample:
        return await asyncio.to_thread(card.sample, CARD, child.pid)

    ending = Ending(process_gone=child.gone, exit_status=status)
    found, _ = await watch_reclaim(baseline, take, ending, tolerance_bytes=64 * MIB, wait_s=0.5, interval_s=0.05)
    assert found.exit_status == status
    return found.verdict


@pytest.mark.req("P7")
@pytest.mark.req("P8")
async def test_memory_of_a_child_is_seen_and_given_back(card: FakeNvml, factory: ChildFactory, tmp_path: Path) -> None:
    baseline = card.sample(CARD)
    child = await loaded_child(factory, card, tmp_path)
    during = card.sample(CARD, child.pid)
    assert (during.process_bytes, during.used_bytes) == (2 * GIB, 2 * GIB + 300 * MIB)
    status = await child.terminate(1)
    assert await verdict(card, child, baseline, status.text) == "reclaimed"


@pytest.mark.req("P8")
async def test_a_leak_is_not_reclaimed(card: FakeNvml, factory: ChildFactory, tmp_path: Path) -> None:
    baseline = card.sample(CARD)
    child = await loaded_child(factory, card, tmp_path)
    card.state(card0_used=900 * MIB)
    status = await child.terminate(1)
    assert await verdict(card, child, baseline, status.text) == "not_reclaimed"


@pytest.mark.req("P8")
async def test_a_stranger_that_grew_makes_it_inconclusive(
    card: FakeNvml, factory: ChildFactory, tmp_path: Path
) -> None:
    baseline = card.sample(CARD)
    child = await loaded_child(factory, card, tmp_path)
    other = await loaded_child(factory, card, tmp_path / "other")
    status = await child.terminate(1)
    assert await verdict(card, child, baseline, status.text) == "inconclusive"
    await other.terminate(1)
