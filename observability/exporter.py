"""The Prometheus endpoint (spec O1): a registry of its own, read at scrape time, on a thread of its own.

It only reads: no scrape can reach the ledger or the bus. Names follow Prometheus' rules (prefix, base unit,
`_total`, timestamps instead of ages), label sets are closed, and every series exists from the first scrape on.
"""

from __future__ import annotations

import http.server
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from importlib import metadata
from typing import Any, Final

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bus.errors import ErrorCode, ModelForgeError
from bus.settings import APP
from bus.states import ProbeState
from observability.counters import Counters
from observability.persistence import PersistenceHealth
from observability.vitals import BusEvent, Loop, Vitals

LOOPBACK: Final = "127.0.0.1"
MAX_CONNECTIONS: Final = 8
CONNECTION_TIMEOUT_S: Final = 5.0
_STOP_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.1  # how soon `close` is noticed

ProbeCounts = Callable[[], Mapping[ProbeState, int]]
ReadVitals = Callable[[], Vitals]
_ANY_ADDRESS: Final = ("", "0.0.0.0")  # noqa: S104 -- recognised here, chosen by whoever configures it


class ModelForgeCollector(Collector):
    """Turns the counters and the callables into metric families at each scrape.

    `probe_counts` and `vitals` are called on the exporter's thread: they must be quick and thread-safe. When one
    fails, its families are left out of that scrape (absent, not zero) and the failure is counted.
    """

    def __init__(
        self,
        counters: Counters,
        *,
        health: PersistenceHealth | None = None,
        probe_counts: ProbeCounts | None = None,
        vitals: ReadVitals | None = None,
    ) -> None:
        self._counters = counters
        self._health = health
        self._probe_counts = probe_counts
        self._vitals = vitals
        self._collect_failures = 0

    def collect(self) -> Iterator[Metric]:
        """All families of the product."""
        yield _build_info()
        yield self._operations()
        if self._health is not None:
            yield from _persistence(self._health)
        if self._probe_counts is not None:
            yield from self._probes(self._probe_counts)
        if self._vitals is not None:
            yield from self._life(self._vitals)
        yield _counter("modelforge_observability_misuses", "Counted values outside the enums.", self._counters.misuses)
        yield _counter(
            "modelforge_observability_collect_failures",
            "Scrapes in which a part could not be read.",
            self._collect_failures,
        )

    def _operations(self) -> Metric:
        family = CounterMetricFamily(
            "modelforge_operations",
            "Operations by how they ended, over all lives of the controller.",
            labels=("operation", "outcome"),
        )
        for (operation, outcome), total in self._counters.snapshot().items():
            family.add_metric((operation.value, outcome.value), total)
        return family

    def _probes(self, probe_counts: ProbeCounts) -> Iterator[Metric]:
        try:
            counts = probe_counts()
        except Exception:  # noqa: BLE001 -- whatever the callable does, the other families must still be scraped
            self._collect_failures += 1
            return
        family = GaugeMetricFamily("modelforge_probes", "Probes by state.", labels=("state",))
        for state in ProbeState:
            family.add_metric((state.value,), counts.get(state, 0))
        yield family

    def _life(self, read_vitals: ReadVitals) -> Iterator[Metric]:
        try:
            vitals = read_vitals()
        except Exception:  # noqa: BLE001 -- as above
            self._collect_failures += 1
            return
        yield _labelled(
            "modelforge_controller_faults",
            "Faults of the controller's loops since it started; each loop goes on.",
            "loop",
            Loop,
            vitals.faults,
        )
        yield _labelled(
            "modelforge_bus_events",
            "Troubles that the controller's connections got over since it started.",
            "event",
            BusEvent,
            vitals.bus_events,
        )


def _labelled(name: str, text: str, label: str, kinds: type[StrEnum], counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for kind in kinds:
        family.add_metric((kind.value,), counts.get(kind, 0))
    return family


def _build_info() -> Metric:
    family = GaugeMetricFamily("modelforge_build_info", "The running version; always 1.", labels=("version",))
    family.add_metric((_version(),), 1)
    return family


def _version() -> str:
    try:
        return metadata.version(APP)
    except metadata.PackageNotFoundError:
        return "unknown"


def _persistence(health: PersistenceHealth) -> Iterator[Metric]:
    state = health.snapshot()
    yield _counter(
        "modelforge_observability_persistence_failures", "Attempts to persist counters that failed.", state.failures
    )
    yield GaugeMetricFamily(
        "modelforge_observability_persistence_healthy",
        "Did the last attempt succeed (1) or not (0)?",
        value=float(state.healthy),
    )
    yield GaugeMetricFamily(
        "modelforge_observability_persistence_last_success_timestamp_seconds",
        "When counters were last on disk; 0 for never in this life.",
        value=state.last_success_timestamp_s,
    )


def _counter(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(name, text, value=value)


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Answers at most `MAX_CONNECTIONS` clients at once; one more is turned away, not queued without a bound."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the base class's reverse look-up, which may wait for a name server."""
        socketserver.TCPServer.server_bind(self)
        host = str(self.server_address[0])
        # Whoever scrapes from another machine or container finds this one by its name; no look-up is needed for it.
        self.server_name = socket.gethostname() if host in _ANY_ADDRESS else host
        self.server_port = self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the client if there is room for one."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one client, and make room again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up or stalls is its own affair; the base class would print a traceback."""


class Exporter:
    """A running endpoint."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where Prometheus scrapes: the address that is listened on, or this machine's name when it is every one."""
        return f"http://{self._server.server_name}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop listening; waits a few seconds at most."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_STOP_TIMEOUT_S)


def start_exporter(
    counters: Counters,
    host: str = LOOPBACK,
    port: int = 0,
    *,
    health: PersistenceHealth | None = None,
    probe_counts: ProbeCounts | None = None,
    vitals: ReadVitals | None = None,
) -> Exporter:
    """Serve `counters` over HTTP; port 0 takes a free one (see `url`).

    Raises:
        ModelForgeError: PORT_IN_USE.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ModelForgeCollector(counters, health=health, probe_counts=probe_counts, vitals=vitals))
    handler = type("Handler", (MetricsHandler,), {"registry": registry, "timeout": CONNECTION_TIMEOUT_S})
    try:
        server = _Server((host, port), handler)
    except OSError as error:
        reason = error.strerror or "cannot listen"
        message = f"the metrics endpoint cannot listen on {host}:{port}: {reason}"
        raise ModelForgeError(ErrorCode.PORT_IN_USE, message) from error
    return Exporter(server)
