"""An agent written by hand: raw subjects and raw JSON, none of the product's messages.

So both sides of the wire are held to the documented form, and a lie can be told.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nats import errors

from adapters.formats import stacks
from bus.client import BusClient
from bus.errors import ModelForgeError
from bus.messages.artifacts import FileEntry, Manifest

WORK = "work"
INPUT_SHA256 = hashlib.sha256(b"ModelForge runtime compatibility probe").hexdigest()
LIFE = ("loading", "healthchecking", "ready", "unloading")
ENVIRONMENT: dict[str, Any] = {
    "python": "3.11.7",
    "platform": "linux",
    "packages": {"sentence-transformers": "5.2.0", "transformers": "5.0.0", "torch": "2.13.0+cpu"},
    "adapters": [
        {
            "name": "sentence_transformers", "version": "1", "executable": True, "tasks": ["embedding"],
            "modalities": ["text"], "model_types": ["bert"], "formats": ["safetensors"],
        }
    ],
}  # fmt: skip
HARDWARE: dict[str, Any] = {
    "cpu_model": "a test's", "cpu_count": 2, "memory_total_bytes": 16 * 2**30, "memory_available_bytes": 8 * 2**30,
    "gpu_reason": "none",
}  # fmt: skip


@dataclass(frozen=True)
class FakeSet:
    """A set that the inspector finds compatible, without one real file."""

    digest: str
    manifest: str
    evidence: str


def compatible_set() -> FakeSet:
    names = ("1_Pooling/config.json", "config.json", "model.safetensors", "modules.json", "tokenizer.json")
    manifest = Manifest(files=tuple(FileEntry(path=name, size_bytes=10, sha256="a" * 64) for name in sorted(names)))
    documents = {
        "config.json": {
            "model_type": "bert", "vocab_size": 2, "hidden_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 512,
        },
        "modules.json": [
            {"name": "0", "type": "sentence_transformers.models.Transformer", "path": ""},
            {"name": "1", "type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True},
    }  # fmt: skip
    weights = [
        {
            "path": "model.safetensors", "format": "safetensors", "tensors": 2, "parameters": 16,
            "bytes_by_dtype": {"F32": 64},
            "metadata": stacks.metadata(
                (
                    ("embeddings.word_embeddings.weight", (2, 8)),
                    # As many as a layer has.
                    *((f"encoder.layer.0.output.{number}", (0,)) for number in range(16)),
                )
            ),
        }
    ]  # fmt: skip
    files = [{"path": file.path, "size_bytes": file.size_bytes, "sha256": file.sha256} for file in manifest.files]
    return FakeSet(
        manifest.digest(),
        json.dumps({"files": files}),
        json.dumps({"documents": documents, "weights": weights, "scanner": "scan.2"}),
    )


def moment() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def passing_evidence() -> dict[str, Any]:
    """What a CPU probe that passed measures."""
    return {
        "kind": "measured", "adapter": "sentence_transformers", "adapter_version": "1", "device": "cpu",
        "batch_size": 1, "max_sequence_length": 256, "timings": {"load_ms": 5.0, "total_ms": 9.0},
        "memory": {"source": "process_rss", "peak_bytes": 1_000}, "samples": [],
        "isolation": {
            "layers": [{"name": "audit_guard", "active": True}, {"name": "scrubbed_environment", "active": True}],
            "egress_barrier": "seccomp", "containment": "none", "start_method": "fresh",
        },
        "reclaim": {
            "verdict": "not_applicable", "basis": "no GPU", "process_gone": True, "exit_status": "exit 0",
        },
        "health": {"process": "healthy", "runtime": "healthy", "model": "healthy"},
        "output": {
            "input_sha256": INPUT_SHA256, "vector_length": 8, "vector_sha256": "c" * 64, "norm": 1.0,
            "first_values": [0.5], "dtype": "float32", "finite": True, "repeat_identical": True,
        },
    }  # fmt: skip


@dataclass(frozen=True)
class Delivery:
    """A pulled message as the agent sees it."""

    subject: str
    reply: str
    job: dict[str, Any]

    @property
    def job_id(self) -> str:
        return self.subject.rsplit(".", 1)[-1]

    @property
    def sequence(self) -> int:
        return int(self.reply.split(".")[5])


class FakeAgent:
    """One life of an agent, as obedient or as false as a test wants."""

    def __init__(self, client: BusClient, node: str, boot: str | None = None) -> None:
        self.client = client
        self.node = node
        self.boot = boot or secrets.token_hex(16)
        self._inventories = 0

    def inventory(self, **fields: Any) -> dict[str, Any]:
        self._inventories += 1
        return {
            "kind": "node.inventory.v1", "node": self.node, "boot_id": self.boot, "sequence": self._inventories,
            "at": moment(), "started_at": moment(), "agent_version": "0.1.0", "capabilities": ["runtime.probe.v1"],
            "environment": ENVIRONMENT, "hardware": HARDWARE, "slots": 2, "active": [], **fields,
        }  # fmt: skip

    async def call(self, verb: str, body: dict[str, Any], *, node: str | None = None) -> dict[str, Any]:
        """Call a node verb; raises the error of a refusal."""
        subject = f"mf.api.node.{node or self.node}.{verb}"
        reply = json.loads(await self.client.request(subject, json.dumps(body).encode(), timeout_s=10.0))
        if reply["kind"] == "api.failed.v1":
            failure = reply["failure"]
            raise ModelForgeError(failure["code"], failure["message"])
        data: dict[str, Any] = reply["data"]
        return data

    async def hello(self, **fields: Any) -> dict[str, Any]:
        return await self.call("hello", {"inventory": self.inventory(**fields)})

    async def say(self, **fields: Any) -> None:
        """Publish an inventory, as agents do every few seconds."""
        await self.client.publish(f"mf.inventory.{self.node}", json.dumps(self.inventory(**fields)).encode())

    async def try_pull(self, wait_s: float = 0.2, lane: str = WORK) -> Delivery | None:
        """Ask for one message as the documentation of JetStream says."""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.MF_JOBS.{self.node}-{lane}"
        request = json.dumps({"batch": 1, "expires": int(wait_s * 1e9)}).encode()
        try:
            message = await self.client.raw.request(subject, request, timeout=wait_s + 2.0, old_style=True)
        except (errors.TimeoutError, errors.NoRespondersError):
            return None
        return Delivery(message.subject, message.reply, json.loads(message.data)) if message.reply else None

    async def pull(self, wait_s: float = 5.0) -> Delivery:
        delivery = await self.try_pull(wait_s)
        assert delivery is not None, "no job came"
        return delivery

    async def claim(self, taken: Delivery, **fields: Any) -> dict[str, Any]:
        body = {
            "boot_id": self.boot, "job_id": taken.job_id, "delivery": taken.reply, "num_delivered": 1, **fields,
        }  # fmt: skip
        return await self.call("claim", body)

    async def renew(self, lease: dict[str, Any], **fields: Any) -> dict[str, Any]:
        body = {"boot_id": self.boot, "lease_id": lease["lease_id"], "token": lease["token"], **fields}
        return await self.call("renew", body)

    async def publish(self, body: dict[str, Any] | bytes, *, node: str | None = None) -> None:
        """Publish evidence and wait until the stream has it."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.client.publish_stored(f"mf.evidence.{node or self.node}", data)

    def phase(self, job_id: str, lease: dict[str, Any], sequence: int, *states: str, **fields: Any) -> dict[str, Any]:
        """A phase message whose timeline holds these states."""
        return self._word("probe.phase.v1", job_id, lease, sequence, states, fields)

    def finished(
        self, job_id: str, lease: dict[str, Any], sequence: int, outcome: str = "completed", **fields: Any
    ) -> dict[str, Any]:
        """The last word of an attempt that went through the whole life."""
        evidence = passing_evidence() if outcome == "completed" else None
        extra = {"outcome": outcome, "evidence": evidence, "log_ref": "x", "log_text": "loaded\n", **fields}
        return self._word("probe.finished.v1", job_id, lease, sequence, LIFE, extra)

    def _word(
        self, kind: str, job_id: str, lease: dict[str, Any], sequence: int, states: tuple[str, ...],
        fields: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        marks = [{"state": state, "at": moment(), "attempt": lease["attempt"]} for state in states]
        return {
            "kind": kind, "node": self.node, "boot_id": self.boot, "job_id": job_id, "lease_id": lease["lease_id"],
            "attempt": lease["attempt"], "sequence": sequence, "at": moment(), "timeline": marks, **fields,
        }  # fmt: skip

    async def finish_scan(
        self, delivery: Delivery, lease: dict[str, Any] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Claim a scan, unless it is held, and report the compatible set; returns the lease."""
        lease = lease or await self.claim(delivery)
        found = compatible_set()
        await self.publish({
            "kind": "scan.finished.v1", "node": self.node, "boot_id": self.boot, "job_id": delivery.job_id,
            "lease_id": lease["lease_id"], "attempt": lease["attempt"], "sequence": 1, "at": moment(),
            "outcome": "succeeded", "manifest_json": found.manifest, "evidence_json": found.evidence, **fields,
        })  # fmt: skip
        return lease
