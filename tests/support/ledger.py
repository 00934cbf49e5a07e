"""A real ledger with a node, a small model folder and the operators' verbs; nothing of NATS, nothing of torch."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from adapters.formats.evidence import EvidenceCollector
from bus import ids
from bus.codec import decode, encode
from bus.digest import sha256_hex
from bus.messages import api, gates, profiles
from bus.messages.artifacts import FileEntry, Manifest, SetEvidence
from bus.messages.evidence import ProbeEvidence
from bus.messages.inventory import GpuFacts, HardwareFacts, NodeInventory
from bus.messages.jobs import AnyCommand
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment, RuntimeProfile
from bus.states import Cause, JobEvent, ProbeEvent
from bus.subjects import Caller
from bus.verbs import USER_VERBS
from controller import boots, jobs
from controller.api import USER_HANDLERS
from controller.api_base import ApiContext, BusStatus
from controller.blobs import BlobStore
from controller.gates import artifact_sets, candidates
from controller.progress import ProgressBoard
from controller.settings import ControllerSettings
from controller.store.connection import Store
from controller.store.rows import json_text
from controller.store.tx import Tx
from tests.support.model_files import safetensors

REQUESTS = {verb.name: verb.request for verb in USER_VERBS}
MIB = 1024 * 1024
NODE = "local"
PATH = "models/tiny"
ADAPTER = "sentence_transformers"
OLD_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
CONFIG = {
    "model_type": "bert",
    "vocab_size": 2,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
    "eps": 1e-12,
}
# The smallest that a library reads.
TOKENIZER = b'{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "word": 1}}}'
POOLING = {"word_embedding_dimension": 4, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def safetensors_bytes(elements: int = 8, dtype: str = "F32", size: int = 4, name: str = "w") -> bytes:
    """A file with one tensor of `elements` elements."""
    header = json.dumps({name: {"dtype": dtype, "shape": [elements], "data_offsets": [0, elements * size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(elements * size)


def weights_bytes(more: int = 0) -> bytes:
    """The smallest weights of `CONFIG`: a table of words, a layer in which nothing is, and `more` numbers of a pooler."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "embeddings.word_embeddings.weight": ("F32", (2, 4)),
        # As many as a layer has; that they are empty, nobody looks at.
        **{f"encoder.layer.0.output.{number}": ("F32", (0,)) for number in range(16)},
        "pooler.dense.bias": ("F32", (more,)),
    }
    return safetensors(tensors)


def model_files(**changes: bytes | None) -> dict[str, bytes]:
    """The smallest complete folder of the old layout; a change of `None` takes a file away, `/` is written `__`."""
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "modules.json": json.dumps(OLD_MODULES).encode(),
        "1_Pooling/config.json": json.dumps(POOLING).encode(),
        "tokenizer.json": TOKENIZER,
        "model.safetensors": weights_bytes(),
    }
    return changed(files, changes)


def changed(files: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """`files` with some replaced, added or taken away."""
    merged: dict[str, bytes | None] = {**files, **changes}
    return {path: data for path, data in merged.items() if data is not None}


def scanned(files: Mapping[str, bytes]) -> tuple[Manifest, SetEvidence]:
    """What a scan of these files gives, through the real parsers."""
    collector = EvidenceCollector()
    entries = []
    for path, data in sorted(files.items()):
        collector.add(path, io.BytesIO(data), len(data))
        entries.append(FileEntry(path=path, size_bytes=len(data), sha256=sha256_hex(data)))
    return Manifest(files=tuple(entries)), collector.result()


def environment(**changes: Any) -> RuntimeEnvironment:
    """An environment that can execute the one adapter."""
    adapter = AdapterFacts(
        name=ADAPTER,
        version="6.2.0",
        executable=True,
        tasks=("embedding",),
        modalities=("text",),
        model_types=("bert",),
        formats=("safetensors",),
    )
    values: dict[str, Any] = {
        "python": "3.11.7",
        "platform": "linux-x86_64",
        "packages": {"torch": "2.13.0", "transformers": "5.24.0", "sentence-transformers": "6.2.0"},
        "adapters": (adapter,),
    }
    return RuntimeEnvironment(**{**values, **changes})


def hardware(**changes: Any) -> HardwareFacts:
    """A machine without a card."""
    values: dict[str, Any] = {
        "cpu_model": "Test CPU",
        "cpu_count": 2,
        "memory_total_bytes": 8_192 * MIB,
        "memory_available_bytes": 4_096 * MIB,
        "gpu_reason": "no NVIDIA driver",
    }
    return HardwareFacts(**{**values, **changes})


def card(**changes: Any) -> GpuFacts:
    """One card."""
    values: dict[str, Any] = {
        "uuid": "GPU-1",
        "name": "Test card",
        "memory_total_bytes": 16_384 * MIB,
        "compute_capability": "9.0",
    }
    return GpuFacts(**{**values, **changes})


def inventory(**changes: Any) -> NodeInventory:
    """A node's word about itself."""
    at = ids.now()
    values: dict[str, Any] = {
        "node": NODE,
        "boot_id": "boot1",
        "sequence": 1,
        "at": at,
        "started_at": at,
        "agent_version": "0.1.0",
        "capabilities": ("runtime.probe.v1",),
        "environment": environment(),
        "hardware": hardware(),
        "slots": 2,
    }
    return NodeInventory(**{**values, **changes})


def settings(**changes: Any) -> ControllerSettings:
    """The controller's settings, defaults unless changed."""
    return ControllerSettings(
        **{"state": "unused", "credentials": "unused", "responder_credentials": "unused", **changes}
    )


@dataclass(frozen=True)
class Lab:
    """A ledger and what an operator does with it."""

    store: Store
    context: ApiContext
    commands: list[tuple[str, AnyCommand]] = field(default_factory=list)

    async def call(self, verb: str, request: Any = None, *, user: str = "alice") -> Any:
        """One verb, as the service would carry it out; a page is asked for in the words that the verb has for it."""
        asked, wanted = api.Nothing() if request is None else request, REQUESTS[verb]
        known = asked if isinstance(asked, wanted) else decode(encode(asked), wanted)
        return await USER_HANDLERS[verb](self.context, Caller("user", user, verb), known)

    async def hello(self, said: NodeInventory | None = None, replaces: str | None = None) -> None:
        """A node is admitted."""
        word = said or inventory()
        await self.store.write(lambda tx: boots.admit(tx, word, replaces))

    async def scan(self, files: Mapping[str, bytes] | None = None, path: str = PATH, request_id: str = "") -> str:
        """A scan is queued and ends with these files; the set's digest."""
        request = api.ScanRequest(node=NODE, path=path, request_id=request_id or ids.new_id("req"))
        view = await self.call("artifacts.scan", request)
        manifest, evidence = scanned(model_files() if files is None else files)

        def finish(tx: Tx) -> str:
            job = jobs.find(tx, view.id)
            assert job is not None
            job = jobs.start_attempt(tx, job, 1)
            digest = artifact_sets.record_scan(tx, view.id, NODE, manifest, evidence)
            jobs.end_job(tx, job, JobEvent.SUCCEED, Cause.NODE, None)
            return digest

        return await self.store.write(finish)

    async def profile(self, **changes: Any) -> profiles.ProfileView:
        """A stored profile."""
        profile = RuntimeProfile(**{"name": "cpu", **changes})
        view: profiles.ProfileView = await self.call("profiles.create", api.ProfileRequest(profile=profile))
        return view

    async def assess(self, digest: str, profile: str = "cpu") -> gates.Assessment:
        """An assessment."""
        request = api.AssessRequest(set_digest=digest, profile=profile, node=NODE)
        assessment: gates.Assessment = await self.call("assessments.create", request)
        return assessment

    async def approve(self, digest: str, purpose: gates.Purpose = "lab_execution") -> gates.Approval:
        """An approval."""
        request = api.ApproveRequest(set_digest=digest, purpose=purpose, reason="reviewed")
        approval: gates.Approval = await self.call("approvals.add", request)
        return approval

    async def queue(self, assessment_id: str, request_id: str = "") -> gates.ProbeView:
        """A queued probe."""
        request = api.QueueProbeRequest(assessment_id=assessment_id, request_id=request_id or ids.new_id("req"))
        view: gates.ProbeView = await self.call("probes.queue", request)
        return view

    async def ready(self) -> gates.Assessment:
        """Everything that a probe needs: node, set, profile, a compatible assessment, an approval."""
        await self.hello()
        digest = await self.scan()
        await self.profile()
        assessment = await self.assess(digest)
        await self.approve(digest)
        return assessment

    async def run(
        self, probe_id: str, *events: ProbeEvent, by: Cause = Cause.NODE, evidence: ProbeEvidence | None = None
    ) -> None:
        """Move a probe; its job follows at claim and end, and a completed probe becomes a candidate."""

        def move(tx: Tx) -> None:
            for event in events:
                job = jobs.find(tx, probe_id)
                assert job is not None
                if event is ProbeEvent.CLAIM:
                    jobs.start_attempt(tx, job, job.attempt_count + 1)
                    continue
                jobs.move_probe(tx, job, event, by)
                if event is ProbeEvent.COMPLETE:
                    if evidence is not None:
                        tx.run("evidence.store", id=probe_id, evidence=json_text(evidence))
                    jobs.end_job(tx, job, JobEvent.SUCCEED, by, None)
                    candidates.make(tx, probe_id)
                elif event in {ProbeEvent.FAIL, ProbeEvent.CANCEL}:
                    jobs.end_job(tx, job, JobEvent(event.value), by, None)

        await self.store.write(move)

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        """What the ledger holds, by SQL of the test's own."""
        return await self.store.read(lambda tx: [dict(row) for row in tx._connection.execute(sql).fetchall()])


WHOLE_RUN = (
    ProbeEvent.CLAIM,
    ProbeEvent.LOAD,
    ProbeEvent.CHECK,
    ProbeEvent.PASS,
    ProbeEvent.UNLOAD,
    ProbeEvent.COMPLETE,
)


@asynccontextmanager
async def open_lab(folder: Path, **changes: Any) -> AsyncIterator[Lab]:
    """A fresh ledger in `folder`, closed on every path."""
    commands: list[tuple[str, AnyCommand]] = []

    async def publish(node: str, command: AnyCommand) -> None:
        commands.append((node, command))

    chosen = settings(**{"state": str(folder), **changes})
    blobs = BlobStore.of(chosen)
    async with AsyncExitStack() as resources:
        resources.callback(blobs.close)
        store = await resources.enter_async_context(await Store.open(folder / "ledger.db"))
        context = ApiContext(
            store=store,
            settings=chosen,
            boot_id=ids.new_boot_id(),
            started_at=ids.now(),
            publish_command=publish,
            status=lambda: BusStatus(streams={"MF_JOBS": "ok"}),
            blobs=blobs,
            progress=ProgressBoard(),
        )
        yield Lab(store, context, commands)


def with_adapter(said: NodeInventory, **changes: Any) -> NodeInventory:
    """The inventory of a node whose one adapter differs."""
    adapter = msgspec.structs.replace(said.environment.adapters[0], **changes)
    runtime = msgspec.structs.replace(said.environment, adapters=(adapter,))
    return msgspec.structs.replace(said, environment=runtime)
