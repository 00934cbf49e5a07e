"""The front door's sections, what `up` derives from the state folder, and every section with its origins."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from bus.ids import NAME
from bus.settings import VARIABLES, Loaded, Settings, load, read_file

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
S = TypeVar("S", bound=Settings)

DERIVED: Final = "derived by `modelforge up`"
_FALLBACK_USER: Final = "operator"
_USER_MAX_CHARS: Final = 24


class ServerSettings(Settings, frozen=True, kw_only=True):
    """`[server]`: the embedded nats-server of `modelforge up`.

    Attributes:
        port: where it listens on loopback; 0 lets the system choose.
        http_port: its monitoring endpoint on loopback; 0 for none.
    """

    port: Port = 4222
    http_port: Port = 0


class UpSettings(Settings, frozen=True, kw_only=True):
    """`[up]`: how `modelforge up` runs the stack.

    Attributes:
        user: name of the operator whose key is made; approvals and the audit trail name it. Empty: the login name.
        ready_s: how long each part may take to get ready.
        stop_s: how long each part may take to stop before it is killed.
        max_restarts: how often one part is started again within `restart_window_s`; after that everything stops.
        restart_window_s: see there.
    """

    user: str = ""
    ready_s: Seconds = 30.0
    stop_s: Seconds = 15.0
    max_restarts: Count = 5
    restart_window_s: Seconds = 60.0


def login_user() -> str:
    """The login name as a name of the bus: who approves something should be a person, not `operator`."""
    try:
        login = getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry
        return _FALLBACK_USER
    name = re.sub(r"[^a-z0-9-]", "-", login.lower())[:_USER_MAX_CHARS]
    return name if NAME.fullmatch(name) else _FALLBACK_USER


def section(
    type_: type[S],
    name: str,
    *,
    file: Path | None,
    flags: Mapping[str, Any] | None = None,
    derived: Mapping[str, Any] | None = None,
) -> Loaded[S]:
    """One section like `bus.settings.load`, where `derived` stands in for what nobody gave.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE, CONFIG_INVALID.
    """
    given = set(read_file(file).get(name, {})) if file is not None else set()
    given |= {key for variable, (target, key) in VARIABLES.items() if target == name and os.environ.get(variable)}
    given |= {key for key, value in (flags or {}).items() if value is not None}
    added = {key: value for key, value in (derived or {}).items() if key not in given}
    loaded = load(type_, name, file=file, flags={**(flags or {}), **added})
    loaded.origins.update(dict.fromkeys(added, DERIVED))
    return loaded


def derived_controller(state: Path) -> dict[str, str]:
    """Where `up` keeps the controller's folder and seeds."""
    return {
        "state": str(state / "controller"),
        "credentials": str(state / "keys" / "controller.nk"),
        "responder_credentials": str(state / "keys" / "responder.nk"),
    }


def derived_node(state: Path) -> dict[str, str]:
    """The local node of `up`, its artifact root when none is named, and where it keeps the digests of its scans."""
    return {"name": "local", "artifact_root": str(state / "artifacts"), "cache": str(state / "cache")}


def all_sections(file: Path | None, state: Path) -> dict[str, Loaded[Any]]:
    """Every section of every process, as `modelforge up` in this state folder would use it.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE, CONFIG_INVALID.
    """
    from bus.settings import ClientSettings  # noqa: PLC0415 -- these rooms are heavy; `up --help` needs none
    from controller.settings import ControllerSettings  # noqa: PLC0415 -- lazy: `--help` stays quick
    from node_agent.settings import NodeSettings  # noqa: PLC0415 -- lazy: `--help` stays quick

    return {
        "client": section(ClientSettings, "client", file=file),
        "server": section(ServerSettings, "server", file=file),
        "controller": section(ControllerSettings, "controller", file=file, derived=derived_controller(state)),
        "node": section(NodeSettings, "node", file=file, derived=derived_node(state)),
        "up": section(UpSettings, "up", file=file, derived={"user": login_user()}),
    }


def toml_value(value: object) -> str:
    """A scalar or a list of scalars as TOML.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the one control character that JSON lets through.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    message = f"{type(value).__name__} has no place in a configuration file"
    raise TypeError(message)


def render_toml(sections: Mapping[str, Mapping[str, object]]) -> str:
    """Sections of scalars as a TOML document; `None` is left out."""
    blocks = []
    for name, values in sections.items():
        lines = [f"{key} = {toml_value(value)}" for key, value in values.items() if value is not None]
        blocks.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(blocks) + "\n"
