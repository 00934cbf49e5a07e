"""What `modelforge up` will do, read and checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bus.errors import ErrorCode, ModelForgeError
from bus.ids import check_name
from controller.settings import ControllerSettings
from modelforge.nats_server import find_binary, refuse_taken_port
from modelforge.settings import (
    ServerSettings,
    UpSettings,
    all_sections,
    derived_controller,
    derived_node,
    login_user,
    section,
)
from modelforge.state import StateFolder, StateLock
from node_agent.settings import NodeSettings

_DEFAULT_ROOT: Final = "artifacts"
_NODE_PATHS: Final = ("artifact_root", "scratch", "cache", "environment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything `up` will do, checked, before anything is done."""

    state: StateFolder
    server: ServerSettings
    up: UpSettings
    controller: dict[str, object]
    node: dict[str, object]
    make_artifact_root: bool

    @property
    def node_name(self) -> str:
        """Name of the local node."""
        return str(self.node["name"])

    @property
    def artifact_root(self) -> Path:
        """Folder that the local node scans and loads from; absolute."""
        return Path(str(self.node["artifact_root"]))


def make_plan(
    state: Path,
    config: Path | None,
    *,
    port: int | None = None,
    artifact_root: Path | None = None,
    node: str | None = None,
) -> Plan:
    """Read and check every setting; writes nothing.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE, CONFIG_INVALID, INVALID_ARGUMENT, PATH_NOT_FOUND, STATE_LOCKED,
            PORT_IN_USE, DEPENDENCY_MISSING.
    """
    all_sections(config, state)  # the whole file, not only what this process reads
    folder = StateFolder(state)
    server = section(ServerSettings, "server", file=config, flags={"port": port}).value
    up = section(UpSettings, "up", file=config, derived={"user": login_user()}).value
    controller = section(ControllerSettings, "controller", file=config, derived=derived_controller(state)).value.check()
    root = None if artifact_root is None else str(artifact_root.expanduser().absolute())
    flags = {"artifact_root": root, "name": node}
    local = section(NodeSettings, "node", file=config, flags=flags, derived=derived_node(state))
    check_name(local.value.name, "node")
    check_name(up.user, "user")
    plan = Plan(
        state=folder,
        server=server,
        up=up,
        controller=msgspec.structs.asdict(controller),
        node=_node_section(local.value),
        make_artifact_root=local.value.artifact_root == str(state / _DEFAULT_ROOT),
    )
    _check_surroundings(plan)
    return plan


def _node_section(node: NodeSettings) -> dict[str, object]:
    """The agent's section; it works in another folder, so every path that was given is made absolute here."""
    values = msgspec.structs.asdict(node)
    return {**values, **{key: _absolute(values[key]) for key in _NODE_PATHS if values[key]}}


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _check_surroundings(plan: Plan) -> None:
    if not plan.make_artifact_root and not plan.artifact_root.is_dir():
        message = f"the artifact root {plan.artifact_root} is not a folder"
        raise ModelForgeError(ErrorCode.PATH_NOT_FOUND, message, hint="Name an existing folder with `--artifact-root`.")
    find_binary()
    StateLock(plan.state.lock).refuse_if_held()
    for port in filter(None, (plan.server.port, plan.server.http_port)):
        refuse_taken_port(port)
