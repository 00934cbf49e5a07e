"""The few system calls that Python 3.11 does not offer, through libc.

Only what the child's isolation needs; every call raises OSError with the kernel's errno, so that a layer which
could not be had is reported with its reason.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_GET_PDEATHSIG: Final = 2
PR_SET_SECCOMP: Final = 22
PR_SET_NO_NEW_PRIVS: Final = 38
SECCOMP_MODE_FILTER: Final = 2
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, second: object = 0, third: object = 0) -> int:
    """`prctl(2)`. Raises OSError."""
    return _check(_libc.prctl(option, second, third, 0, 0), f"prctl {option}")


def get_parent_death_signal() -> int:
    """The armed parent-death signal, 0 when none is armed."""
    value = ctypes.c_int(0)
    prctl(PR_GET_PDEATHSIG, ctypes.byref(value))
    return value.value


def unshare(flags: int) -> None:
    """`unshare(2)`: a network namespace, together with a user namespace when the caller is not root."""
    _check(_libc.unshare(flags), "unshare")


def raw_socket_errno(family: int, kind: int) -> int:
    """Ask the kernel itself for a socket, past Python and its audit hooks; 0 when it was granted (and closed)."""
    descriptor = _libc.socket(family, kind, 0)
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


def clone_refused_errno() -> int:
    """Ask the kernel for a new process by a way that no audit hook sees; 0 when it was granted (and reaped)."""
    pid = _libc.fork()
    if pid == 0:
        os._exit(0)
    if pid < 0:
        return ctypes.get_errno()
    os.waitpid(pid, 0)
    return 0


def machine() -> str:
    """The kernel's name of this processor: `x86_64`, `aarch64`, ..."""
    return platform.machine()
