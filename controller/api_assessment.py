"""What operators may ask of profiles, environments and assessments: one handler for each of their verbs."""

from __future__ import annotations

from itertools import islice
from typing import Final

from bus import verbs
from bus.messages import api
from bus.messages.gates import Assessment
from bus.messages.profiles import EnvironmentView, ProfileView
from bus.subjects import Caller
from controller.api_base import ApiContext, Handler, Part, bounded, limit_of
from controller.fingerprint import Now
from controller.gates import assessments as assessment_gate
from controller.gates import profiles as profile_gate
from controller.gates.probes import silence_of
from controller.store import assessments, environments, profiles
from controller.store.tx import Tx

# How far back one request looks for assessments that went stale.
MAX_SEARCHED: Final = 5_000


async def profiles_create(ctx: ApiContext, caller: Caller, request: api.ProfileRequest) -> ProfileView:
    """Store a profile."""
    return await ctx.store.write(lambda tx: profile_gate.create(tx, caller, request))


async def profiles_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.Profiles:
    """Profiles, newest first."""
    limit = limit_of(request)
    found = await ctx.store.read(lambda tx: bounded(profiles.list_profiles(tx, limit + 1), limit))
    return api.Profiles(profiles=found.items, truncated=found.truncated)


async def profiles_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> ProfileView:
    """One profile: the newest version of a name, `NAME@N`, or by its id."""
    return await ctx.store.read(lambda tx: profiles.find(tx, request.id))


async def environments_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.Environments:
    """Environments, the one seen last first, with the nodes that have each now."""
    limit = limit_of(request)
    found = await ctx.store.read(lambda tx: bounded(environments.list_environments(tx, limit + 1), limit))
    return api.Environments(environments=found.items, truncated=found.truncated)


async def environments_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> EnvironmentView:
    """One environment, by its id or by the name of a node that has it."""
    return await ctx.store.read(lambda tx: environments.find(tx, request.id))


async def assessments_create(ctx: ApiContext, caller: Caller, request: api.AssessRequest) -> Assessment:
    """Assess a set under a profile on a node."""
    silence = silence_of(ctx.settings)
    return await ctx.store.write(lambda tx: assessment_gate.create(tx, silence, caller, request))


async def assessments_list(ctx: ApiContext, _caller: Caller, request: api.AssessmentsRequest) -> api.Assessments:
    """Assessments as they stand now, newest first, without the snapshots that `show` gives.

    Those that went stale are looked for as far back as the page needs, at most `MAX_SEARCHED` assessments; that there
    may be more is said.
    """
    limit = limit_of(request)
    found = await ctx.store.read(lambda tx: _assessments(tx, limit, stale_only=request.stale_only))
    return api.Assessments(assessments=found.items, truncated=found.truncated)


def _assessments(tx: Tx, limit: int, *, stale_only: bool) -> Part[Assessment]:
    now = Now(tx)
    searched = MAX_SEARCHED if stale_only else limit
    left_over = False
    chosen: list[Assessment] = []
    for number, one in enumerate(assessments.newest_first(tx, searched + 1)):
        left_over = number >= searched
        if left_over or len(chosen) > limit:
            break
        shown = assessment_gate.show(one, now)
        if shown.stale_because or not stale_only:
            chosen.append(shown)
    proven = assessment_gate.with_proofs(tx, islice(chosen, limit + 1), now)
    part = bounded((assessment_gate.brief(one) for one in proven), limit)
    return Part(part.items, truncated=part.truncated or left_over)


async def assessments_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> Assessment:
    """One assessment as it stands now."""

    def view(tx: Tx) -> Assessment:
        now = Now(tx)
        return assessment_gate.with_proofs(tx, [assessment_gate.show(assessments.find(tx, request.id), now)], now)[0]

    return await ctx.store.read(view)


HANDLERS: Final[dict[str, Handler]] = {
    verbs.PROFILES_CREATE.name: profiles_create,
    verbs.PROFILES_LIST.name: profiles_list,
    verbs.PROFILES_SHOW.name: profiles_show,
    verbs.ENVIRONMENTS_LIST.name: environments_list,
    verbs.ENVIRONMENTS_SHOW.name: environments_show,
    verbs.ASSESSMENTS_CREATE.name: assessments_create,
    verbs.ASSESSMENTS_LIST.name: assessments_list,
    verbs.ASSESSMENTS_SHOW.name: assessments_show,
}
