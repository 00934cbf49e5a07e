"""Runtime profiles: immutable, known by name and by the digest of their contents (spec G1)."""

from __future__ import annotations

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import ProfileView, RuntimeProfile
from controller.store import resolve
from controller.store.rows import Row, from_json, json_text, time_of
from controller.store.tx import Tx


def find(tx: Tx, typed: str) -> ProfileView:
    """The profile of this name, or whose id begins so.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    row = tx.one("profiles.by_name", name=typed)
    return _view(row) if row is not None else get(tx, resolve.by_digest(tx, "profiles.resolve", typed, "profile"))


def by_name(tx: Tx, name: str) -> ProfileView | None:
    """The profile of exactly this name."""
    row = tx.one("profiles.by_name", name=name)
    return None if row is None else _view(row)


def get(tx: Tx, profile_id: str) -> ProfileView:
    """One profile by its whole id.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    row = tx.one("profiles.get", id=profile_id)
    if row is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no profile {profile_id}")
    return _view(row)


def list_profiles(tx: Tx, limit: int) -> tuple[ProfileView, ...]:
    """Profiles, newest first."""
    return tuple(_view(row) for row in tx.all("profiles.list", limit=limit))


def insert(tx: Tx, profile_id: str, profile: RuntimeProfile, created_by: str, version: int = 1) -> ProfileView:
    """Store a new profile."""
    tx.run(
        "profiles.insert",
        id=profile_id,
        name=profile.name,
        version=version,
        body=json_text(profile),
        created_by=created_by,
        at=tx.at,
    )
    return get(tx, profile_id)


def _view(row: Row) -> ProfileView:
    return ProfileView(
        id=row["id"],
        profile=from_json(row["body"], RuntimeProfile),
        created_at=time_of(row["created_at"]),
        created_by=row["created_by"],
        version=row["version"],
    )
