"""A scan as a node lives it, without NATS: leased through the real claim, ended through the real evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bus import ids
from bus.codec import encode
from bus.digest import canonical_json, sha256_hex
from bus.messages import api
from bus.messages.artifacts import BlobRef, Manifest, ScanView, SetEvidence
from bus.messages.blobs import MAX_CHUNK_BYTES, NodeBlobPut
from bus.messages.evidence import ScanFinished
from bus.subjects import Caller
from controller import evidence, leases
from controller.node_blobs import NodeBlobs
from observability.counters import Outcome
from tests.support.ledger import NODE, PATH, Lab

BOOT = "boot1"
TTL_S = 30.0


@dataclass(frozen=True)
class LeasedScan:
    """What the node knows of its attempt."""

    id: str
    lease_id: str
    token: str
    attempt: int


async def claim(lab: Lab, job_id: str, ttl_s: float = TTL_S) -> LeasedScan:
    """The node's agent claims the job."""
    delivery = "$JS.ACK.MF_JOBS.local-work.1.1.1.1.1"
    request = api.ClaimRequest(boot_id=BOOT, job_id=job_id, delivery=delivery, num_delivered=1)
    granted = await lab.store.write(lambda tx: leases.claim(tx, NODE, request, ttl_s))
    assert isinstance(granted, api.ClaimGranted), granted
    return LeasedScan(job_id, granted.lease_id, granted.token, granted.attempt)


async def leased(lab: Lab, path: str = PATH, ttl_s: float = TTL_S, **fields: Any) -> LeasedScan:
    """A scan is queued and claimed."""
    request = api.ScanRequest(node=NODE, path=path, request_id=ids.new_id("req"), **fields)
    view: ScanView = await lab.call("artifacts.scan", request)
    return await claim(lab, view.id, ttl_s)


def finished(scan: LeasedScan, **fields: Any) -> ScanFinished:
    """The node's last word."""
    head = {
        "node": NODE, "boot_id": BOOT, "job_id": scan.id, "lease_id": scan.lease_id, "attempt": scan.attempt,
        "sequence": 1, "at": ids.now(), "outcome": "succeeded",
    }  # fmt: skip
    return ScanFinished(**{**head, **fields})


async def end(lab: Lab, scan: LeasedScan, found: tuple[Manifest, SetEvidence], **fields: Any) -> ScanView:
    """The scan ends with these files; how it looks then."""
    manifest, kept = found
    word = finished(
        scan, manifest_json=canonical_json(manifest).decode(), evidence_json=encode(kept).decode(), **fields
    )
    outcome = await lab.store.write(lambda tx: evidence.apply(tx, word, NODE))
    assert outcome is Outcome.SUCCEEDED, outcome
    view: ScanView = await lab.call("scans.show", api.ById(id=scan.id))
    return view


def node_blobs(lab: Lab) -> NodeBlobs:
    """The node verbs over the lab's ledger and files."""
    return NodeBlobs(lab.store, lab.context.blobs, lab.context.progress)


async def send(lab: Lab, scan: LeasedScan, data: bytes, chunk: int = MAX_CHUNK_BYTES) -> BlobRef:
    """The node sends a payload under its lease."""
    blob = BlobRef(sha256=sha256_hex(data), size_bytes=len(data))
    verbs = node_blobs(lab)
    for offset in range(0, len(data), chunk):
        request = NodeBlobPut(
            boot_id=BOOT, lease_id=scan.lease_id, token=scan.token, blob=blob, offset=offset,
            data=data[offset : offset + chunk],
        )  # fmt: skip
        await verbs.put(Caller("node", NODE, "blob.put"), request)
    return blob
