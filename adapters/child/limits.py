"""What bounds a child besides the network: memory, core files, descriptors, and the life of its parent."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Collection

from adapters.child import kernel
from bus.messages.evidence import Layer


def die_with_parent(parent_pid: int) -> Layer:
    """Arm the parent-death signal, then look whether the parent is still there.

    The order closes a race: a parent that died before the signal was armed sends none. The kernel binds the signal
    to the thread that started this process and clears it when credentials change, so it is armed again after every
    such step.

    Raises:
        SystemExit: the parent is gone already.
        OSError: the signal could not be armed.
    """
    kernel.prctl(kernel.PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent_pid:
        raise SystemExit(f"the parent {parent_pid} is gone")
    armed = kernel.get_parent_death_signal() == signal.SIGKILL
    return Layer(name="parent_death_signal", active=armed, detail="SIGKILL when the parent ends")


def limit_memory(limit_bytes: int) -> Layer:
    """Bound the private writable memory of this process.

    RLIMIT_DATA, not RLIMIT_AS: address space also counts mapped weight files and what a CUDA driver reserves without
    using, so that a limit of the wanted size would end a process that is far below it.
    """
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    except (OSError, ValueError) as error:
        return Layer(name="memory_limit", active=False, detail=f"{error}")
    active = resource.getrlimit(resource.RLIMIT_DATA)[0] == limit_bytes
    return Layer(name="memory_limit", active=active, detail=f"RLIMIT_DATA {limit_bytes} bytes")


def no_core_files() -> Layer:
    """No core file: it would hold weights and inputs."""
    try:
        # Not PR_SET_DUMPABLE: it would also take the child's memory figures from an agent that is not root.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError) as error:
        return Layer(name="no_core_file", active=False, detail=f"{error}")
    return Layer(name="no_core_file", active=True, detail="RLIMIT_CORE 0")


def open_descriptors() -> set[int]:
    """The descriptors that are open now."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- pathlib would keep its own descriptor in the list
        descriptor = int(entry)
        try:
            os.fstat(descriptor)
        except OSError:
            continue  # the one with which the folder was read
        found.add(descriptor)
    return found


def close_inherited(keep: Collection[int]) -> Layer:
    """Close every descriptor but 0, 1, 2 and `keep`; a library's idea of a descriptor of the parent ends here."""
    wanted = {0, 1, 2, *keep}
    for descriptor in open_descriptors() - wanted:
        os.close(descriptor)
    left = open_descriptors() - wanted
    detail = "only the channel and the log are open" if not left else f"still open: {sorted(left)}"
    return Layer(name="closed_descriptors", active=not left, detail=detail)


def own_session() -> Layer:
    """Is this process the leader of a session and group of its own, so that it can be ended as a whole?"""
    active = os.getsid(0) == os.getpid() == os.getpgid(0)
    return Layer(name="own_session", active=active, detail="leader of its own session and group")
