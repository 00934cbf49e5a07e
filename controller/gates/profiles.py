"""Runtime profiles: stored once, never changed (spec G1)."""

from __future__ import annotations

from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ProfileRequest
from bus.messages.profiles import ProfileView, RuntimeProfile
from bus.subjects import Caller
from controller.gates.caller import actor_of
from controller.store import profiles
from controller.store.tx import Tx

# The largest sensible value of each figure: a typing error must not become a job of days or terabytes.
LARGEST: Final = {
    "batch_size": 65_536,
    "max_sequence_length": 1_048_576,
    "threads": 1_024,
    "memory_limit_mib": 16 * 1024 * 1024,
    "reclaim_tolerance_mib": 1024 * 1024,
}
LONGEST_BUDGET_S: Final = 24 * 3_600
_ADAPTER_CHARS: Final = 64


def create(tx: Tx, caller: Caller, request: ProfileRequest) -> ProfileView:
    """Store a profile; the same contents under the same name give the same profile.

    Raises:
        ModelForgeError: PROFILE_CONFLICT when the name stands for other contents, INVALID_ARGUMENT.
    """
    profile = request.profile
    check(profile)
    profile_id = profile.digest()
    before = profiles.by_name(tx, profile.name)
    if before is not None:
        if before.id != profile_id:
            message = f"the profile {profile.name} exists with other contents"
            raise ModelForgeError(ErrorCode.PROFILE_CONFLICT, message, id=before.id)
        return before
    view = profiles.insert(tx, profile_id, profile, caller.name)
    detail = {"name": profile.name, "adapter": profile.adapter, "device": profile.device, "dtype": profile.dtype}
    tx.audit("profile", profile_id, "created", actor_of(caller), detail=detail)
    return view


def check(profile: RuntimeProfile) -> None:
    """Pass if the profile's values go together.

    Raises:
        ModelForgeError: INVALID_ARGUMENT naming the rule.
    """
    for name, largest in LARGEST.items():
        if getattr(profile, name) > largest:
            raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"{name} must be at most {largest}")
    if profile.gpu_uuid is not None and profile.device != "cuda":
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "gpu_uuid belongs to a profile with the device cuda")
    if profile.gpu_uuid is not None and not (profile.gpu_uuid.isprintable() and 0 < len(profile.gpu_uuid) <= 64):  # noqa: PLR2004 -- `GPU-` and a UUID are 40 characters
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "gpu_uuid is no UUID of a card")
    if not profile.adapter.isidentifier() or len(profile.adapter) > _ADAPTER_CHARS:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "adapter is a name such as sentence_transformers")
    budgets = profile.budgets
    phases = (budgets.preparing_s, budgets.loading_s, budgets.healthchecking_s, budgets.unloading_s)
    if max(*phases, budgets.total_s) > LONGEST_BUDGET_S:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"a budget must be at most {LONGEST_BUDGET_S} s")
    if max(phases) > budgets.total_s:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "no phase's budget may be greater than total_s")
