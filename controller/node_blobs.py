"""What a node sends and fetches beside its messages: large payloads in chunks, and how far a scan is.

Every call is under a lease that runs: whoever does not hold it gets and leaves nothing (spec P4, B2).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from bus import verbs
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import blobs
from bus.subjects import Caller
from controller import jobs, leases
from controller.blobs import BlobStore, node_place
from controller.progress import ProgressBoard
from controller.store import probes, sets
from controller.store.connection import Store
from controller.store.tx import Tx

Handler = Callable[[Caller, Any], Awaitable[object]]
SCAN: Final = "scan"
# A manifest is fetched in many ranges, by a few nodes at a time.
MAX_CACHED_MANIFESTS: Final = 4


class NodeBlobs:
    """The node verbs about payloads. Every method raises ModelForgeError for what the agent is to be told."""

    def __init__(self, store: Store, files: BlobStore, progress: ProgressBoard) -> None:
        self._store = store
        self._files = files
        self._progress = progress
        self._manifests: OrderedDict[str, bytes] = OrderedDict()

    def handlers(self) -> Mapping[str, Handler]:
        """By verb."""
        return {
            verbs.BLOB_PUT.name: self.put,
            verbs.BLOB_GET.name: self.get,
            verbs.PROGRESS.name: self.progress,
        }

    async def put(self, caller: Caller, request: blobs.NodeBlobPut) -> blobs.BlobState:
        """Take one chunk of what a leased scan will report.

        Raises:
            ModelForgeError: PERMISSION_DENIED, BOOT_SUPERSEDED, LEASE_FENCED, BLOB_REFUSED, STORE_UNAVAILABLE.
        """
        await self._job(caller, request, SCAN)
        return await self._files.put(
            node_place(caller.name, request.lease_id), request.blob, request.offset, request.data
        )

    async def get(self, caller: Caller, request: blobs.NodeBlobGet) -> blobs.BlobChunk:
        """A range of the canonical JSON of the manifest that the leased probe is about.

        Raises:
            ModelForgeError: as `put`; PERMISSION_DENIED for another set, BLOB_REFUSED behind the end.
        """
        job = await self._job(caller, request, jobs.PROBE)
        data = self._manifests.get(request.digest)
        # Asked every time, also for one that is in memory: only the job says which set a node may see.
        named = await self._store.read(lambda tx: _manifest(tx, job, request.digest, needed=data is None))
        if data is None:
            data = self._manifests[request.digest] = named
            while len(self._manifests) > MAX_CACHED_MANIFESTS:
                self._manifests.popitem(last=False)
        if request.offset >= len(data):
            message = f"the manifest has {len(data)} bytes, and none at {request.offset}"
            raise ModelForgeError(ErrorCode.BLOB_REFUSED, message)
        chunk = data[request.offset : request.offset + blobs.MAX_CHUNK_BYTES]
        return blobs.BlobChunk(data=chunk, total_bytes=len(data))

    async def progress(self, caller: Caller, request: blobs.ProgressReport) -> blobs.Noted:
        """Remember how far a leased scan is.

        Raises:
            ModelForgeError: PERMISSION_DENIED, BOOT_SUPERSEDED, LEASE_FENCED.
        """
        self._progress.note(await self._job(caller, request, SCAN), request.progress)
        return blobs.Noted()

    async def _job(
        self, caller: Caller, request: blobs.NodeBlobPut | blobs.NodeBlobGet | blobs.ProgressReport, type_: str
    ) -> str:
        """The id of the job that the caller works on under the lease that he names."""
        found = await self._store.read(
            lambda tx: leases.holder(tx, caller.name, request.boot_id, request.lease_id, request.token)
        )
        if not isinstance(found, ModelForgeError) and found.type != type_:
            found = ModelForgeError(ErrorCode.PERMISSION_DENIED, f"the lease is not one of a {type_}")
        if isinstance(found, ModelForgeError):
            refused = found
            # A lease that is over is no reach for what is another's: the last word on a scan's progress comes late.
            if refused.code is not ErrorCode.LEASE_FENCED:
                await self._store.write(lambda tx: _audit(tx, caller, request.lease_id, refused))
            raise refused
        return found.id


def _manifest(tx: Tx, job_id: str, digest: str, *, needed: bool) -> bytes:
    if probes.view(tx, job_id).set_digest != digest:
        raise ModelForgeError(ErrorCode.PERMISSION_DENIED, "the leased job is about another set")
    return canonical_json(sets.manifest(tx, digest)) if needed else b""


def _audit(tx: Tx, caller: Caller, lease_id: str, error: ModelForgeError) -> None:
    """As a refused renewal is: the trail shows who reached for what is not his."""
    detail = {"code": error.code, "reason": error.message, "verb": caller.verb}
    tx.audit_refusal("lease", lease_id, "payload-refused", caller.name, detail=detail)
