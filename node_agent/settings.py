"""What an agent is told: its name, where its artifacts lie, how much it does at once."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from adapters.declared import EnvironmentDeclaration
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import Name
from bus.settings import ClientSettings, Settings, load
from node_agent import environment_file

Slots = Annotated[int, msgspec.Meta(ge=1, le=16)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=16)]
Mebibytes = Annotated[int, msgspec.Meta(ge=256, le=65_536)]


class NodeSettings(Settings, frozen=True, kw_only=True):
    """Section `[node]`.

    Attributes:
        name: the node's name; the server's permissions bind it to the key in `client.credentials`.
        artifact_root: folder below which every artifact of this node lies; it is only ever read.
        scratch: folder for a child's temporary files; empty means the platform's own.
        slots: how many jobs of the work lane run at once.
        template_idle_s: after this long without a probe the warm template process is ended.
        hash_threads: how many files are hashed at once.
        test_double: offer the adapter that fails on command; only tests say yes.
        scan_memory_limit_mib: private memory that the process of one scan may use; a file that needs more to be read
            ends the scan, typed.
        cache: folder of the digests that scans computed before, so that a re-scan reads only what changed; empty means
            none. For a local file system: it trusts the times that the kernel keeps of each file. A probe never uses it.
        environment: TOML file with the container image and with declarations of adapters; empty means none.
        stop_grace_s: how long a stop waits for running jobs before it ends them.
    """

    name: Name
    artifact_root: str
    scratch: str = ""
    slots: Slots = 2
    template_idle_s: Seconds = 300.0
    hash_threads: Threads = 2
    scan_memory_limit_mib: Mebibytes = 1_024
    cache: str = ""
    environment: str = ""
    test_double: bool = False
    stop_grace_s: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """All that an agent process is configured with; the folders are absolute, and all but `cache` exist."""

    node: NodeSettings
    client: ClientSettings
    artifact_root: Path
    scratch: Path
    cache: Path | None = None
    environment: EnvironmentDeclaration | None = None


def load_settings(file: Path) -> AgentSettings:
    """The settings in `file`, with the declared variables over it.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE; CONFIG_INVALID for an unknown key, a wrong value or a missing folder, also in
            the environment file.
    """
    node = load(NodeSettings, "node", file=file).value
    client = load(ClientSettings, "client", file=file).value
    if not client.url:
        raise ModelForgeError(ErrorCode.CONFIG_INVALID, f"[client] in {file}: an agent needs `url`")
    return AgentSettings(
        node=node,
        client=client,
        artifact_root=_folder(node.artifact_root, "artifact_root"),
        scratch=_folder(node.scratch or tempfile.gettempdir(), "scratch"),
        cache=Path(node.cache).expanduser().absolute() if node.cache else None,
        environment=environment_file.load(Path(node.environment).expanduser()) if node.environment else None,
    )


def _folder(text: str, key: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise ModelForgeError(ErrorCode.CONFIG_INVALID, f"[node] {key}: {text!r} is not a folder on this machine")
    return path.resolve()
