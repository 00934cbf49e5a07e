"""What operators may ask of the controller: one handler for each user verb of `bus.verbs`.

A handler reads or writes through one transaction and gives the verb's reply; it raises `ModelForgeError`, which the
service turns into a `Failed` reply.
"""

from __future__ import annotations

from datetime import datetime
from importlib import metadata
from typing import Final

from bus import verbs
from bus.messages import api
from bus.messages.gates import Approval, Candidate, ProbeView
from bus.messages.inventory import NodeView
from bus.messages.jobs import CancelCommand
from bus.subjects import Caller
from controller import api_artifacts, api_assessment
from controller.api_base import MAX_LIST_BYTES, MAX_LIST_ITEMS, ApiContext, Handler, Part, bounded, limit_of
from controller.fingerprint import Now
from controller.gates import approvals as approval_gate
from controller.gates import candidates as candidate_gate
from controller.gates import nodes as node_gate
from controller.gates import probes as probe_gate
from controller.gates.probes import silence_of
from controller.store import approvals, candidates, nodes, probes, trail
from controller.store.tx import Tx


async def status(ctx: ApiContext, _caller: Caller, _request: api.Nothing) -> api.Status:
    """The controller's own health."""

    def view(tx: Tx) -> tuple[datetime, int, int, int]:
        open_jobs, waiting = tx.one("jobs.count_open"), tx.one("outbox.count")
        return (
            tx.at,
            trail.last_sequence(tx),
            open_jobs["open_jobs"] if open_jobs else 0,
            waiting["waiting"] if waiting else 0,
        )

    at, sequence, open_jobs, waiting = await ctx.store.read(view)
    bus = ctx.status()
    return api.Status(
        version=metadata.version("modelforge"),
        boot_id=ctx.boot_id,
        started_at=ctx.started_at,
        at=at,
        schema_version=ctx.store.schema_version,
        event_sequence=sequence,
        open_jobs=open_jobs,
        outbox_waiting=waiting,
        streams=bus.streams,
        metrics_url=bus.metrics_url,
        faults=bus.faults,
        bus_events=bus.bus_events,
    )


async def nodes_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.Nodes:
    """Nodes by name."""
    limit, silence = limit_of(request), silence_of(ctx.settings)
    found = await ctx.store.read(lambda tx: bounded(nodes.list_views(tx, limit + 1, silence), limit))
    return api.Nodes(nodes=found.items, truncated=found.truncated)


async def nodes_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> NodeView:
    """One node by its name."""
    return await ctx.store.read(lambda tx: nodes.view(tx, request.id, silence_of(ctx.settings)))


async def nodes_set(ctx: ApiContext, caller: Caller, request: api.NodeFlagsRequest) -> NodeView:
    """Enable or disable a node, for work or for the lab."""
    silence = silence_of(ctx.settings)
    return await ctx.store.write(lambda tx: node_gate.set_flags(tx, silence, caller, request))


async def approvals_add(ctx: ApiContext, caller: Caller, request: api.ApproveRequest) -> Approval:
    """Approve one exact set for one purpose."""
    return await ctx.store.write(lambda tx: approval_gate.add(tx, caller, request))


async def approvals_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.Approvals:
    """Approvals, revoked ones too, newest first."""
    limit = limit_of(request)
    found = await ctx.store.read(lambda tx: bounded(approvals.list_approvals(tx, limit + 1), limit))
    return api.Approvals(approvals=found.items, truncated=found.truncated)


async def approvals_revoke(ctx: ApiContext, caller: Caller, request: api.RevokeRequest) -> Approval:
    """Take an approval back."""
    return await ctx.store.write(lambda tx: approval_gate.revoke(tx, caller, request))


async def probes_queue(ctx: ApiContext, caller: Caller, request: api.QueueProbeRequest) -> ProbeView:
    """Queue the fixed-input probe."""
    return await ctx.store.write(lambda tx: probe_gate.queue(tx, ctx.settings, caller, request))


async def probes_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.ProbePicture:
    """All recent probes, the nodes, and the last event that is in the picture."""
    limit, silence = limit_of(request), silence_of(ctx.settings)

    def view(tx: Tx) -> api.ProbePicture:
        recent = bounded(probes.list_views(tx, limit + 1), limit, MAX_LIST_BYTES // 2)
        known = bounded(nodes.list_views(tx, MAX_LIST_ITEMS + 1, silence), MAX_LIST_ITEMS, MAX_LIST_BYTES // 2)
        return api.ProbePicture(
            as_of_sequence=trail.last_sequence(tx),
            at=tx.at,
            probes=recent.items,
            nodes=known.items,
            truncated=recent.truncated or known.truncated,
        )

    return await ctx.store.read(view)


async def probes_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> ProbeView:
    """One probe with its evidence."""
    return await ctx.store.read(lambda tx: probes.view(tx, probes.find(tx, request.id), with_evidence=True))


async def probes_cancel(ctx: ApiContext, caller: Caller, request: api.CancelRequest) -> ProbeView:
    """Cancel a probe; a node that works on it gets the hint after the commit."""
    view = await ctx.store.write(lambda tx: probe_gate.cancel(tx, caller, request))
    if view.cancel_requested and view.finished_at is None:
        await ctx.publish_command(view.node, CancelCommand(job_id=view.id))
    return view


async def probes_log(ctx: ApiContext, _caller: Caller, request: api.LogRequest) -> api.LogView:
    """The bounded log of an attempt."""
    return await ctx.store.read(lambda tx: probes.log(tx, probes.find(tx, request.id), request.attempt))


async def candidates_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.Candidates:
    """Candidates as they stand now, newest first."""
    limit = limit_of(request)

    def view(tx: Tx) -> Part[Candidate]:
        now = Now(tx)
        return bounded((candidate_gate.show(stored, now) for stored in candidates.list_stored(tx, limit + 1)), limit)

    found = await ctx.store.read(view)
    return api.Candidates(candidates=found.items, truncated=found.truncated)


async def candidates_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> Candidate:
    """One candidate as it stands now."""
    return await ctx.store.read(lambda tx: candidate_gate.show(candidates.find(tx, request.id), Now(tx)))


async def audit_list(ctx: ApiContext, _caller: Caller, request: api.AuditRequest) -> api.AuditTrail:
    """The audit trail, newest first, of everything or of one thing."""
    limit = limit_of(request)
    found = await ctx.store.read(lambda tx: bounded(trail.list_entries(tx, limit + 1, request.id), limit))
    return api.AuditTrail(entries=found.items, truncated=found.truncated)


USER_HANDLERS: Final[dict[str, Handler]] = {
    **api_artifacts.HANDLERS,
    **api_assessment.HANDLERS,
    verbs.STATUS.name: status,
    verbs.NODES_LIST.name: nodes_list,
    verbs.NODES_SHOW.name: nodes_show,
    verbs.NODES_SET.name: nodes_set,
    verbs.APPROVALS_ADD.name: approvals_add,
    verbs.APPROVALS_LIST.name: approvals_list,
    verbs.APPROVALS_REVOKE.name: approvals_revoke,
    verbs.PROBES_QUEUE.name: probes_queue,
    verbs.PROBES_LIST.name: probes_list,
    verbs.PROBES_SHOW.name: probes_show,
    verbs.PROBES_CANCEL.name: probes_cancel,
    verbs.PROBES_LOG.name: probes_log,
    verbs.CANDIDATES_LIST.name: candidates_list,
    verbs.CANDIDATES_SHOW.name: candidates_show,
    verbs.AUDIT_LIST.name: audit_list,
}
