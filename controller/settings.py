"""The controller's section of the configuration. Durations are seconds; every one is short in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec

from bus.errors import ErrorCode, ModelForgeError
from bus.settings import Settings

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
MAX_SCAN_FILES: Final = 100_000
Files = Annotated[int, msgspec.Meta(ge=1, le=MAX_SCAN_FILES)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class ControllerSettings(Settings, frozen=True, kw_only=True):
    """`[controller]` of the configuration file.

    Attributes:
        state: folder of the ledger and of the counters' own database.
        credentials: NKey seed file of the user that owns streams, outbox and evidence.
        responder_credentials: NKey seed file of the user that answers requests and may publish to inboxes only.
        lease_ttl_s: a lease that is not renewed for this long is over; also the consumers' `ack_wait`.
        inventory_interval_s: how often an agent repeats its inventory.
        doubtful_after_s: silence after which a node is doubtful.
        offline_after_s: silence after which a node counts as offline.
        reconcile_interval_s: how often ledger and queue are compared.
        sweep_interval_s: how often leases and deadlines are looked at.
        prove_wait_s: how long an admitted boot has to show that it lives when another one knocks.
        max_attempts: how often a scan or probe may be claimed.
        scan_max_files: bound of one scan.
        blob_caller_mib: large payloads of one node or user that wait to be used, in all.
        blob_total_mib: the same of all nodes and users.
        blob_keep_s: a payload that nobody touched for this long is removed.
        blob_sweep_s: how often such payloads are looked for.
        scan_deadline_s: a scan ends typed after this long, its wait in the queue and all its attempts together; a day is
            enough for 1 TB from a slow disk. Each attempt goes on where the one before ended, unless the scan is fresh.
        probe_queue_wait_s: how long a probe may wait in the queue, on top of its profile's budget for each attempt.
        request_timeout_s: bound of one request's handling.
        requests_per_endpoint: handlers of one endpoint that run at once; more wait their turn.
        connect_wait_s: how long to wait for the NATS server at the start.
        stop_grace_s: how long running requests may take to finish when the controller stops.
        metrics_host: where the metrics endpoint listens.
        metrics_port: its port; 0 lets the system choose.
        counters_interval_s: how often the counters are written to their own database.
    """

    state: str
    credentials: str
    responder_credentials: str
    lease_ttl_s: Seconds = 30.0
    inventory_interval_s: Seconds = 5.0
    doubtful_after_s: Seconds = 10.0
    offline_after_s: Seconds = 15.0
    reconcile_interval_s: Seconds = 60.0
    sweep_interval_s: Seconds = 1.0
    prove_wait_s: Seconds = 2.0
    max_attempts: Count = 3
    scan_max_files: Files = 20_000
    blob_caller_mib: Count = 128
    blob_total_mib: Count = 1_024
    blob_keep_s: Seconds = 21_600.0
    blob_sweep_s: Seconds = 60.0
    scan_deadline_s: Seconds = 86_400.0
    probe_queue_wait_s: Seconds = 3_600.0
    request_timeout_s: Seconds = 30.0
    requests_per_endpoint: Count = 64
    connect_wait_s: Seconds = 5.0
    stop_grace_s: Seconds = 10.0
    metrics_host: str = "127.0.0.1"
    metrics_port: Port = 0
    counters_interval_s: Seconds = 5.0

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return Path(self.state) / "ledger.db"

    @property
    def blobs(self) -> Path:
        """The folder of large payloads that wait to be used."""
        return Path(self.state) / "blobs"

    @property
    def counters(self) -> Path:
        """The counters' own file: its loss costs metrics and nothing else (spec O4)."""
        return Path(self.state) / "observability.db"

    def check(self) -> ControllerSettings:
        """Return self when the values go together.

        Raises:
            ModelForgeError: CONFIG_INVALID naming the rule.
        """
        if self.doubtful_after_s > self.offline_after_s:
            message = "[controller]: doubtful_after_s must not be greater than offline_after_s"
            raise ModelForgeError(ErrorCode.CONFIG_INVALID, message)
        if self.sweep_interval_s > self.lease_ttl_s:
            message = "[controller]: sweep_interval_s must not be greater than lease_ttl_s"
            raise ModelForgeError(ErrorCode.CONFIG_INVALID, message)
        return self
