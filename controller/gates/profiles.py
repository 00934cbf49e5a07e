"""Runtime profiles: stored once, never changed; other contents under a name are another version (spec G1)."""

from __future__ import annotations

from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ProfileRequest
from bus.messages.profiles import ProfileView, RuntimeProfile
from bus.profile_rules import check, differences
from bus.subjects import Caller
from controller.gates.caller import actor_of
from controller.store import profiles
from controller.store.tx import Tx

MAX_NAMED_DIFFERENCES: Final = 8


def create(tx: Tx, caller: Caller, request: ProfileRequest) -> ProfileView:
    """Store a profile; the same contents under the same name give the same profile, whichever version that is.

    Raises:
        ModelForgeError: PROFILE_CONFLICT when the name stands for other contents and no new version was asked for;
            INVALID_ARGUMENT.
    """
    profile = request.profile
    check(profile)
    profile_id = profile.digest()
    same = profiles.known(tx, profile_id)
    if same is not None:
        return same
    newest = profiles.by_name(tx, profile.name)
    if newest is not None and not request.new_version:
        raise _conflict(newest, profile)
    version = 1 if newest is None else newest.version + 1
    view = profiles.insert(tx, profile_id, profile, caller.name, version)
    detail = {
        "name": profile.name,
        "version": version,
        "adapter": profile.adapter,
        "device": profile.device,
        "dtype": profile.dtype,
    }
    tx.audit("profile", profile_id, "created", actor_of(caller), detail=detail)
    return view


def _conflict(newest: ProfileView, wanted: RuntimeProfile) -> ModelForgeError:
    found = differences(newest.profile, wanted)
    named = "; ".join(found[:MAX_NAMED_DIFFERENCES])
    more = f"; and {len(found) - MAX_NAMED_DIFFERENCES} more" if len(found) > MAX_NAMED_DIFFERENCES else ""
    message = (
        f"the profile {wanted.name} exists with other contents (version {newest.version}): {named}{more}. "
        "Store these as its next version with --new-version, or choose another name"
    )
    return ModelForgeError(ErrorCode.PROFILE_CONFLICT, message, id=newest.id)
