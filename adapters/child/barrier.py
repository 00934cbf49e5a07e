"""The kernel barrier: a network namespace and the seccomp filter, each one checked after it was put up (spec P11).

Each layer is reported as it really is. What the machine refuses (a default container refuses `unshare`) is a layer
that is not active, with the reason; where nothing could be had the evidence says `none`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from adapters.child import kernel, seccomp
from adapters.child.protocol import Isolated
from bus.messages.evidence import Layer

NETWORK_NAMESPACE: Final = "network_namespace"
SECCOMP_SOCKETS: Final = "seccomp_sockets"
SECCOMP_PROCESSES: Final = "seccomp_processes"
# What keeps the network away, whoever asks for it.
EGRESS: Final = (NETWORK_NAMESPACE, SECCOMP_SOCKETS)
IMPORT_BARRIER: Final = "import_barrier"
NONE: Final = "none"
_NAMESPACE: Final = Path("/proc/self/ns/net")
_SELF: Final = Path("/proc/self")


def enter_network_namespace() -> Layer:
    """Move into an empty network namespace: no interface is up, not even the loopback.

    Root needs no user namespace; anybody else takes one along and keeps its own uid in it. A user namespace needs a
    process with one thread, so this comes before any library starts one.
    """
    before = _NAMESPACE.readlink()
    uid, gid = os.geteuid(), os.getegid()
    try:
        kernel.unshare(kernel.CLONE_NEWNET)
        how = "unshare"
    except OSError as error:
        first = error
        try:
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNET)
            how = "unshare in a user namespace"
        except OSError as second:
            return Layer(name=NETWORK_NAMESPACE, active=False, detail=f"{first}; with a user namespace {second}")
        how += _keep_identity(uid, gid)
    active = _NAMESPACE.readlink() != before
    return Layer(name=NETWORK_NAMESPACE, active=active, detail=how)


def _keep_identity(uid: int, gid: int) -> str:
    """Map the one uid and gid onto themselves; without it the process would look like nobody to its libraries."""
    try:
        with contextlib.suppress(FileNotFoundError):
            (_SELF / "setgroups").write_text("deny")
        (_SELF / "uid_map").write_text(f"{uid} {uid} 1")
        (_SELF / "gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        return f"; the uid could not be mapped: {error.strerror}"
    return ""


def install_filter(*, processes: bool) -> tuple[Layer, ...]:
    """Put the seccomp filter on and ask the kernel whether it holds."""
    try:
        seccomp.install(processes=processes)
    except OSError as error:
        names = (SECCOMP_SOCKETS, SECCOMP_PROCESSES) if processes else (SECCOMP_SOCKETS,)
        return tuple(Layer(name=name, active=False, detail=f"{error}") for name in names)
    refused = kernel.raw_socket_errno(socket.AF_INET, socket.SOCK_STREAM)
    sockets = Layer(
        name=SECCOMP_SOCKETS,
        active=refused != 0,
        detail=f"any socket but AF_UNIX: {os.strerror(refused)}" if refused else "the filter does not hold",
    )
    if not processes:
        return (sockets,)
    refused = kernel.clone_refused_errno()
    return (
        sockets,
        Layer(
            name=SECCOMP_PROCESSES,
            active=refused != 0,
            detail=f"fork and exec: {os.strerror(refused)}" if refused else "the filter does not hold",
        ),
    )


def imported_behind(layers: Sequence[Layer]) -> Layer:
    """What stands while a fresh interpreter imports its libraries: all that stands now."""
    active = any(layer.active for layer in layers if layer.name in EGRESS)
    return Layer(
        name=IMPORT_BARRIER, active=active, detail="the libraries are imported behind the layers of this child"
    )


def imported_here(sockets: Layer) -> Layer:
    """What stood while a template imported: the guard and its own filter, if that holds; it may start processes."""
    detail = (
        f"the libraries were imported in a template that may fork, without a namespace; its filter: {sockets.detail}"
    )
    return Layer(name=IMPORT_BARRIER, active=sockets.active, detail=detail)


def summarise(pid: int, layers: tuple[Layer, ...]) -> Isolated:
    """The frame that tells the parent what stands."""
    active = {layer.name for layer in layers if layer.active}
    egress = [name for name in EGRESS if name in active]
    return Isolated(
        pid=pid,
        layers=layers,
        egress_barrier="+".join(egress) or NONE,
        containment=SECCOMP_PROCESSES if SECCOMP_PROCESSES in active else NONE,
    )
