"""What operators may ask of profiles, environments and assessments: one handler for each of their verbs."""

from __future__ import annotations

from typing import Final

from bus import verbs
from bus.messages import api
from bus.messages.gates import Assessment
from bus.messages.profiles import ProfileView
from bus.subjects import Caller
from controller.api_base import ApiContext, Handler, Part, bounded, limit_of
from controller.fingerprint import Now
from controller.gates import assessments as assessment_gate
from controller.gates import profiles as profile_gate
from controller.gates.probes import silence_of
from controller.store import assessments, profiles
from controller.store.tx import Tx


async def profiles_create(ctx: ApiContext, caller: Caller, request: api.ProfileRequest) -> ProfileView:
    """Store a profile."""
    return await ctx.store.write(lambda tx: profile_gate.create(tx, caller, request))


async def profiles_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.Profiles:
    """Profiles, newest first."""
    limit = limit_of(request)
    found = await ctx.store.read(lambda tx: bounded(profiles.list_profiles(tx, limit + 1), limit))
    return api.Profiles(profiles=found.items, truncated=found.truncated)


async def profiles_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> ProfileView:
    """One profile, by name or id."""
    return await ctx.store.read(lambda tx: profiles.find(tx, request.id))


async def assessments_create(ctx: ApiContext, caller: Caller, request: api.AssessRequest) -> Assessment:
    """Assess a set under a profile on a node."""
    silence = silence_of(ctx.settings)
    return await ctx.store.write(lambda tx: assessment_gate.create(tx, silence, caller, request))


async def assessments_list(ctx: ApiContext, _caller: Caller, request: api.Page) -> api.Assessments:
    """Assessments as they stand now, newest first."""
    limit = limit_of(request)

    def view(tx: Tx) -> Part[Assessment]:
        now = Now(tx)
        return bounded(
            (assessment_gate.show(tx, one, now) for one in assessments.list_assessments(tx, limit + 1)), limit
        )

    found = await ctx.store.read(view)
    return api.Assessments(assessments=found.items, truncated=found.truncated)


async def assessments_show(ctx: ApiContext, _caller: Caller, request: api.ById) -> Assessment:
    """One assessment as it stands now."""
    return await ctx.store.read(lambda tx: assessment_gate.show(tx, assessments.find(tx, request.id), Now(tx)))


HANDLERS: Final[dict[str, Handler]] = {
    verbs.PROFILES_CREATE.name: profiles_create,
    verbs.PROFILES_LIST.name: profiles_list,
    verbs.PROFILES_SHOW.name: profiles_show,
    verbs.ASSESSMENTS_CREATE.name: assessments_create,
    verbs.ASSESSMENTS_LIST.name: assessments_list,
    verbs.ASSESSMENTS_SHOW.name: assessments_show,
}
