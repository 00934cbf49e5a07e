"""NVML through the real nvidia-ml-py, against a small fake library with cards."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.measure import nvml
from tests.support.fake_nvml import FakeNvml

GIB = 1024**3
MIB = 1024**2


@pytest.fixture
def cards(tmp_path: Path) -> Iterator[FakeNvml]:
    fake = FakeNvml(tmp_path)
    fake.state(
        count=2,
        driver="570.124.06",
        cuda=12080,
        card0_name="NVIDIA GeForce RTX 4090",
        card0_total=24 * GIB,
        card0_used=300 * MIB,
        card0_reserved=430 * MIB,
        card1_total=8 * GIB,
        card1_uuid="GPU-bbbb",
        card1_cc=75,
    )
    yield fake
    fake.close()


@pytest.mark.req("A7")
def test_discovers_cards_driver_and_cuda(cards: FakeNvml) -> None:
    found = cards.discover()
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-fake-0", "GPU-bbbb"]
    assert found.gpus[0].name == "NVIDIA GeForce RTX 4090"
    assert found.gpus[0].memory_total_bytes == 24 * GIB
    assert [gpu.compute_capability for gpu in found.gpus] == ["9.0", "7.5"]
    assert (found.driver_version, found.cuda_version, found.reason) == ("570.124.06", "12.8", None)


@pytest.mark.req("P7")
def test_a_sample_has_every_sensor_and_does_not_count_reserved_memory(cards: FakeNvml) -> None:
    cards.state(card0_util=37, card0_temp="40,55", card0_power=61_000)
    first, second = cards.sample("GPU-fake-0"), cards.sample("GPU-fake-0")
    assert first.used_bytes == 300 * MIB
    assert first.total_bytes == 24 * GIB
    assert first.free_bytes == 24 * GIB - 730 * MIB
    assert (first.utilization_percent, first.power_milliwatts) == (37, 61_000)
    assert (first.temperature_celsius, second.temperature_celsius) == (40, 55)


@pytest.mark.req("P7")
def test_one_memory_call_for_the_whole_probe(cards: FakeNvml) -> None:
    """The first call counts the reserved 430 MiB, the second does not: mixing them makes or hides a leak."""
    cards.error("nvmlDeviceGetMemoryInfo_v2", 999)
    assert cards.sample("GPU-fake-0").used_bytes == 730 * MIB
    cards.error("nvmlDeviceGetMemoryInfo_v2", 0)
    later = cards.sample("GPU-fake-0")
    assert later.used_bytes == 730 * MIB
    assert later.unavailable["reserved_memory"] == "this driver counts it as used"


@pytest.mark.req("P7")
def test_a_later_failure_of_the_chosen_memory_call_is_a_missing_reading(cards: FakeNvml) -> None:
    assert cards.sample("GPU-fake-0").used_bytes == 300 * MIB
    cards.error("nvmlDeviceGetMemoryInfo_v2", 4)
    later = cards.sample("GPU-fake-0")
    assert later.used_bytes is None
    assert later.unavailable["memory"] == "no permission"


@pytest.mark.req("P7")
def test_missing_sensors_are_none_with_their_reason(cards: FakeNvml) -> None:
    for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature"):
        cards.error(function, 3)
    sample = cards.sample("GPU-fake-0")
    assert (sample.power_milliwatts, sample.utilization_percent, sample.temperature_celsius) == (None, None, None)
    assert sample.used_bytes == 300 * MIB
    reasons = {sample.unavailable[name] for name in ("power_milliwatts", "utilization_percent", "temperature_celsius")}
    assert reasons == {"not supported by this card"}


@pytest.mark.req("S6")
def test_own_and_foreign_processes_are_told_apart(cards: FakeNvml) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as own,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
    ):
        cards.use(own.pid, 2 * GIB)
        cards.use(other.pid, 1 * GIB)
        sample = cards.sample("GPU-fake-0", own.pid)
        other_card = cards.sample("GPU-bbbb", own.pid)
        cards.state(no_process_memory=1)
        untold = cards.sample("GPU-fake-0", own.pid)
        cards.state(pid_offset=100_000)
        container = cards.sample("GPU-fake-0", own.pid)
        for process in (own, other):
            process.communicate(b"\n", timeout=10)
    assert sample.process_bytes == 2 * GIB
    assert [(process.pid, process.used_bytes) for process in sample.foreign] == [(other.pid, 1 * GIB)]
    assert sample.used_bytes == 300 * MIB + 3 * GIB
    assert (other_card.process_bytes, other_card.foreign) == (None, ())
    assert untold.process_bytes is None
    assert untold.unavailable["process_bytes"] == "the driver does not tell the memory of a process"
    assert container.process_bytes is None
    assert container.unavailable["process_bytes"] == "the driver lists no process of the probe"
    assert cards.sample("GPU-fake-0").used_bytes == 300 * MIB


def test_a_lost_card_does_not_hide_the_other(cards: FakeNvml) -> None:
    cards.error("nvmlDeviceGetHandleByIndex_v2.1", 15)
    found = cards.discover()
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-fake-0"]
    assert found.reason == "card 1: the card is lost"


def test_a_driver_updated_under_the_system_is_a_reason_and_heals(cards: FakeNvml) -> None:
    cards.error("nvmlInitWithFlags", 18)
    assert "updated under the running system" in (cards.discover().reason or "")
    cards.error("nvmlInitWithFlags", 0)
    assert len(cards.discover().gpus) == 2


def test_an_error_of_the_whole_library_opens_it_anew(cards: FakeNvml) -> None:
    assert cards.sample("GPU-bbbb").used_bytes == 0
    cards.error("nvmlDeviceGetHandleByUUID", 999)
    assert cards.sample("GPU-bbbb").unavailable == {"nvml": "NVML: Unknown"}
    cards.error("nvmlDeviceGetHandleByUUID", 0)
    assert cards.sample("GPU-bbbb").used_bytes == 0


def test_a_call_that_hangs_costs_its_deadline_once(cards: FakeNvml) -> None:
    cards.state(**{"sleep_ms.nvmlDeviceGetCount_v2": 3_000})
    begin = time.monotonic()
    assert cards.discover(timeout_s=0.3).reason == "NVML did not answer within 0.3 s"
    assert cards.discover(timeout_s=0.3).reason == "an earlier NVML call has not answered yet"
    assert time.monotonic() - begin < 2.5


def test_an_unknown_uuid_is_a_reason(cards: FakeNvml) -> None:
    assert cards.sample("GPU-nowhere").unavailable == {"nvml": "no card of this UUID"}


def test_a_machine_without_cards(cards: FakeNvml) -> None:
    cards.state(count=0)
    assert cards.discover().reason == "the driver knows no card"


def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library() -> None:
        raise pynvml.NVMLError_LibraryNotFound

    pynvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(nvml._LIBRARY, "_open", False)
    monkeypatch.setattr(pynvml, "nvmlInit", no_library)
    found = nvml.discover()
    assert found.gpus == ()
    assert "no NVIDIA driver on this machine" in (found.reason or "")
    assert "no NVIDIA driver" in nvml.Gpu("GPU-any").sample([1]).unavailable["nvml"]
