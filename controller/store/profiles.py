"""Runtime profiles: immutable, known by name and by the digest of their contents (spec G1)."""

from __future__ import annotations

import re
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import ProfileView, RuntimeProfile
from controller.store import resolve
from controller.store.rows import Row, from_json, json_text, time_of
from controller.store.tx import Tx

# No name holds an `@`, so this is never a name.
_VERSIONED: Final = re.compile(r"(?P<name>[a-z][a-z0-9-]{0,23})@(?P<version>[1-9][0-9]{0,8})\Z")


def find(tx: Tx, typed: str) -> ProfileView:
    """The profile of this name (the newest version, or `NAME@N`), or whose id begins so.

    Raises:
        ModelForgeError: UNKNOWN_ID or AMBIGUOUS_ID.
    """
    versioned = _VERSIONED.match(typed)
    if versioned is not None:
        return _version(tx, versioned["name"], int(versioned["version"]))
    newest = by_name(tx, typed)
    return newest or get(tx, resolve.by_digest(tx, "profiles.resolve", typed, "profile"))


def _version(tx: Tx, name: str, version: int) -> ProfileView:
    row = tx.one("profiles.by_version", name=name, version=version)
    if row is not None:
        return _view(row)
    newest = by_name(tx, name)
    if newest is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no profile {name!r}")
    message = f"the profile {name} has no version {version}; its newest is {newest.version}"
    raise ModelForgeError(ErrorCode.UNKNOWN_ID, message)


def by_name(tx: Tx, name: str) -> ProfileView | None:
    """The newest version of the profile of exactly this name."""
    row = tx.one("profiles.by_name", name=name)
    return None if row is None else _view(row)


def known(tx: Tx, profile_id: str) -> ProfileView | None:
    """The profile of exactly this id, if it is stored."""
    row = tx.one("profiles.get", id=profile_id)
    return None if row is None else _view(row)


def get(tx: Tx, profile_id: str) -> ProfileView:
    """One profile by its whole id.

    Raises:
        ModelForgeError: UNKNOWN_ID.
    """
    view = known(tx, profile_id)
    if view is None:
        raise ModelForgeError(ErrorCode.UNKNOWN_ID, f"there is no profile {profile_id}")
    return view


def list_profiles(tx: Tx, limit: int) -> tuple[ProfileView, ...]:
    """Profiles, every version, newest first."""
    return tuple(_view(row) for row in tx.all("profiles.list", limit=limit))


def insert(tx: Tx, profile_id: str, profile: RuntimeProfile, created_by: str, version: int) -> ProfileView:
    """Store a new profile; the schema refuses a version that its name has already."""
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
