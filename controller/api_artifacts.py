"""What operators may ask of scans, sets and quarantine: one handler for each of their verbs."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from bus import verbs
from bus.errors import ModelForgeError, Retry
from bus.messages import api, blobs
from bus.messages.artifacts import ArtifactSet, Quarantine, ScanView
from bus.states import JobState
from bus.subjects import Caller
from controller.api_base import MAX_LIST_BYTES, ApiContext, Handler, bounded, limit_of
from controller.blobs import place_of
from controller.gates import artifact_sets as set_gate
from controller.gates import expectations as expectation_gate
from controller.gates import quarantine as quarantine_gate
from controller.set_views import fitting
from controller.store import scans, sets
from controller.store.tx import Tx

MAX_FILES_A_PAGE: Final = 2_000


async def artifacts_scan(ctx: ApiContext, caller: Caller, request: api.ScanRequest) -> ScanView:
    """Queue a scan. The list that it names is read before, and removed once it is in the ledger."""
    if request.expected is None:
        return await ctx.store.write(lambda tx: set_gate.scan(tx, ctx.settings, caller, request))
    expected = await _expected(ctx, caller, request.expected)
    view = await ctx.store.write(lambda tx: set_gate.scan(tx, ctx.settings, caller, request, expected))
    await ctx.blobs.forget(place_of(caller), request.expected.blob)
    return view


async def _expected(ctx: ApiContext, caller: Caller, source: api.ExpectedManifest) -> expectation_gate.Expected:
    """The list as it was read. What is wrong with it is said by the gate: a repeated request needs it no more."""
    try:
        data = await ctx.blobs.read(place_of(caller), source.blob)
    except ModelForgeError as error:
        if error.info.retry is Retry.LATER:
            raise
        known = await ctx.store.read(lambda tx: expectation_gate.again(tx, source, caller.name))
        return known or expectation_gate.Expected(source, problem=error)
    return await asyncio.to_thread(expectation_gate.read, source, data, ctx.settings.scan_max_files)


async def scans_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> ScanView:
    """One scan, and how far it is while it runs."""
    view = await ctx.store.read(lambda tx: scans.find(tx, request.id))
    return replace(view, progress=ctx.progress.of(view.id)) if view.state is JobState.LEASED else view


async def artifacts_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.ArtifactSets:
    """Sets, newest first, without manifests."""
    limit = limit_of(request)
    found = await ctx.store.read(lambda tx: bounded(sets.list_sets(tx, limit + 1), limit))
    return api.ArtifactSets(sets=found.items, truncated=found.truncated)


async def artifacts_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> ArtifactSet:
    """One set with manifest and evidence, as far as one message holds them."""
    return await ctx.store.read(lambda tx: fitting(sets.get(tx, sets.find(tx, request.id)), MAX_LIST_BYTES))


async def artifacts_files(ctx: ApiContext, _caller: Caller, request: api.FilesRequest) -> api.ArtifactFiles:
    """Members of a set from `offset` on, as many as are wished and fit; the next page begins behind the last one."""

    def view(tx: Tx) -> api.ArtifactFiles:
        digest = sets.find(tx, request.id)
        files = sets.manifest(tx, digest).files
        limit = min(request.limit, MAX_FILES_A_PAGE)
        page = bounded(files[request.offset : request.offset + limit], limit)
        return api.ArtifactFiles(digest=digest, offset=request.offset, files=page.items, total=len(files))

    return await ctx.store.read(view)


async def artifacts_quarantine(ctx: ApiContext, caller: Caller, request: api.QuarantineRequest) -> Quarantine:
    """Quarantine the bytes of one member, in every set that has them."""
    return await ctx.store.write(lambda tx: quarantine_gate.add(tx, caller, request))


async def blobs_put(ctx: ApiContext, caller: Caller, request: blobs.BlobPut) -> blobs.BlobState:
    """Take one chunk of a large payload."""
    return await ctx.blobs.put(place_of(caller), request.blob, request.offset, request.data)


HANDLERS: Final[dict[str, Handler]] = {
    verbs.ARTIFACTS_SCAN.name: artifacts_scan,
    verbs.SCANS_SHOW.name: scans_show,
    verbs.ARTIFACTS_LIST.name: artifacts_list,
    verbs.ARTIFACTS_SHOW.name: artifacts_show,
    verbs.ARTIFACTS_FILES.name: artifacts_files,
    verbs.ARTIFACTS_QUARANTINE.name: artifacts_quarantine,
    verbs.BLOBS_PUT.name: blobs_put,
}
