"""Facts about the machine and its packages."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.registry import runtime_environment
from bus.messages.inventory import GpuFacts
from bus.messages.profiles import RuntimeEnvironment
from node_agent.controller_api import Boot
from node_agent.inventory import CachedEnvironment, Inventory, cpu_model, hardware_facts
from node_agent.measure.nvml import Discovery


@pytest.mark.req("A18")
def test_an_environment_is_read_again_when_a_package_came_or_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(tmp_path / "nowhere")])
    reads: list[RuntimeEnvironment] = []

    def read() -> RuntimeEnvironment:
        reads.append(runtime_environment())
        return reads[-1]

    environment = CachedEnvironment(read)
    assert environment() is environment()
    assert len(reads) == 1
    (tmp_path / "torch-99.dist-info").mkdir()
    assert environment().digest() == reads[0].digest()
    assert len(reads) == 2


def test_the_machine_is_described_from_the_kernels_own_tables() -> None:
    card = GpuFacts(uuid="GPU-1", name="a card")
    facts = hardware_facts(Discovery(gpus=(card,), driver_version="1", cuda_version="13.0"))
    assert facts.cpu_model
    assert facts.cpu_count >= 1
    assert 0 < facts.memory_available_bytes <= facts.memory_total_bytes
    assert (facts.gpus, facts.driver_version, facts.cuda_version, facts.gpu_reason) == ((card,), "1", "13.0", None)
    assert hardware_facts(Discovery(reason="no driver")).gpu_reason == "no driver"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: another\n", "Some CPU @ 2 GHz"),
        ("processor : 0\nHardware\t: Board\n", "Board"),
    ],
)
def test_the_processors_name_is_the_kernels(text: str, expected: str) -> None:
    assert cpu_model(text) == expected


def inventory(gpus: Callable[[], Discovery]) -> Inventory:
    return Inventory(Boot("local", "b"), slots=1, active=tuple, environment=runtime_environment, gpus=gpus)


async def test_what_is_known_is_said_again_without_asking_the_machine() -> None:
    asked: list[int] = []

    def gpus() -> Discovery:
        asked.append(1)
        return Discovery(reason="no driver")

    subject = inventory(gpus)
    assert subject.known() is None
    first = await subject.take()
    again = subject.known()
    assert again is not None
    assert (again.environment, again.hardware, len(asked)) == (first.environment, first.hardware, 1)
    assert again.sequence == first.sequence + 1


async def test_a_machine_that_cannot_be_described_costs_a_picture_and_not_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[int] = []
    stored = asyncio.Event()

    def gpus() -> Discovery:
        asked.append(1)
        if len(asked) < 3:
            raise LookupError("a driver that nobody has met before")
        return Discovery()

    class Client:
        async def publish_stored(self, *_: object, **__: object) -> None:
            stored.set()

    publishing = asyncio.create_task(inventory(gpus).publish_for_ever(Client(), 0.06))  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        await stored.wait()
    publishing.cancel()
    await asyncio.wait((publishing,))
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_processor_without_a_name_is_its_architecture() -> None:
    assert cpu_model("processor : 0\n")
