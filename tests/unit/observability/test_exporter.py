"""What Prometheus reads."""

from __future__ import annotations

import re
import select
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bus.errors import ErrorCode, ModelForgeError
from bus.states import ProbeState
from observability.counters import ALL_SERIES, Counters, Operation, Outcome
from observability.exporter import MAX_CONNECTIONS, Exporter, start_exporter
from observability.persistence import CounterStore, PersistenceHealth
from observability.vitals import BusEvent, Loop, Vitals

Sample = tuple[str, tuple[tuple[str, str], ...]]


def scrape(exporter: Exporter) -> dict[Sample, float]:
    """Every sample of one scrape, read by prometheus-client's own parser."""
    with urllib.request.urlopen(exporter.url, timeout=5) as response:  # noqa: S310 -- our own loopback address
        text = response.read().decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def exporter(counters: Counters) -> Iterator[Exporter]:
    running = start_exporter(
        counters,
        health=PersistenceHealth(),
        probe_counts=lambda: {ProbeState.LOADING: 2, ProbeState.QUEUED: 5},
        vitals=lambda: Vitals(faults={Loop.SWEEP: 3}, bus_events={BusEvent.REPEATED: 4}),
    )
    yield running
    running.close()


@pytest.mark.req("O1", "D6")
def test_a_scrape_shows_counts_and_probe_states(counters: Counters, exporter: Exporter) -> None:
    counters.count(Operation.PROBE, Outcome.SUCCEEDED)
    samples = scrape(exporter)
    name = "modelforge_operations_total"
    assert samples[name, (("operation", "probe"), ("outcome", "succeeded"))] == 1
    assert samples["modelforge_probes", (("state", "loading"),)] == 2
    assert samples["modelforge_probes", (("state", "failed"),)] == 0
    assert samples["modelforge_controller_faults_total", (("loop", "sweep"),)] == 3
    assert samples["modelforge_bus_events_total", (("event", "repeated"),)] == 4
    for name_of, kinds in (("modelforge_controller_faults_total", Loop), ("modelforge_bus_events_total", BusEvent)):
        assert sum(key[0] == name_of for key in samples) == len(kinds), "every series is there from the first scrape on"
    assert samples["modelforge_observability_persistence_healthy", ()] == 0
    assert len([key for key in samples if key[0] == name]) == len(ALL_SERIES)
    assert sum(key[0] == "modelforge_probes" for key in samples) == len(ProbeState)
    build = [(labels, value) for (key, labels), value in samples.items() if key == "modelforge_build_info"]
    assert build[0][1] == 1


def test_names_follow_the_rules_of_prometheus(exporter: Exporter) -> None:
    with urllib.request.urlopen(exporter.url, timeout=5) as response:  # noqa: S310 -- our own loopback address
        families = list(text_string_to_metric_families(response.read().decode()))
    for family in families:
        assert re.fullmatch(r"modelforge_[a-z]+(_[a-z]+)*", family.name)
        assert family.documentation
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name


async def test_a_dead_disk_is_seen_in_a_scrape(tmp_path: Path, counters: Counters) -> None:
    (tmp_path / "observability.db").mkdir()
    store = await CounterStore.open(tmp_path / "observability.db")
    exporter = start_exporter(counters, health=store.health)
    try:
        samples = scrape(exporter)
    finally:
        exporter.close()
    assert samples["modelforge_observability_persistence_failures_total", ()] == 1
    assert samples["modelforge_observability_persistence_healthy", ()] == 0


def test_a_failing_callable_costs_its_own_family_only(counters: Counters) -> None:
    def broken() -> Mapping[ProbeState, int]:
        raise RuntimeError("the ledger is gone")

    exporter = start_exporter(counters, probe_counts=broken, vitals=broken)  # type: ignore[arg-type]
    try:
        samples = scrape(exporter)
    finally:
        exporter.close()
    assert not {"modelforge_probes", "modelforge_bus_events_total"} & {name for name, _ in samples}
    assert samples["modelforge_observability_collect_failures_total", ()] == 2


EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 -- what a container listens on


@pytest.mark.parametrize(
    ("host", "named"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), (EVERY_ADDRESS, socket.gethostname())]
)
def test_the_address_that_is_told_is_one_that_can_be_reached(counters: Counters, host: str, named: str) -> None:
    exporter = start_exporter(counters, host)
    try:
        assert re.fullmatch(rf"http://{re.escape(named)}:\d+/metrics", exporter.url)
    finally:
        exporter.close()


def test_a_taken_port_is_a_typed_error(counters: Counters, exporter: Exporter) -> None:
    port = int(exporter.url.split(":")[2].split("/")[0])
    with pytest.raises(ModelForgeError) as caught:
        start_exporter(counters, port=port)
    assert caught.value.code is ErrorCode.PORT_IN_USE


def test_silent_clients_neither_stop_a_scrape_nor_grow_without_bound(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No silent client times out meanwhile: whoever hears an end was turned away.
    monkeypatch.setattr("observability.exporter.CONNECTION_TIMEOUT_S", 600.0)
    exporter = start_exporter(counters)
    port = int(exporter.url.split(":")[2].split("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_CONNECTIONS - 1)]
    try:
        assert scrape(exporter)
        # One finds the last place, or finds it still taken by the scrape; of three, two are one too many.
        more = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        silent += more
        turned_away, _, _ = select.select(more, [], [], 30)
        assert turned_away
        assert turned_away[0].recv(1) == b""
    finally:
        for client in silent:
            client.close()
        exporter.close()
