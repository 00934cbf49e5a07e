"""One seccomp program: no socket but AF_UNIX, no new process, no way into another process (spec P11).

The filter is the barrier that works without any privilege, also in a default container where `unshare` is refused.
It is inherited, cannot be taken off, and sees what no audit hook sees: a C library's own `connect`, a subprocess.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from dataclasses import dataclass
from typing import Final

from adapters.child import kernel

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
# struct seccomp_data: number at 0, architecture at 4, arguments (64 bit, low word first) from 16.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_CLONE_THREAD: Final = 0x00010000
_X32_BIT: Final = 0x40000000


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The system call numbers of one architecture; `None` where it has no such call."""

    architecture: int
    sockets: tuple[int, ...]
    clone: int
    clone3: int
    processes: tuple[int, ...]
    reach: tuple[int, ...]
    namespaces: tuple[int, ...]
    has_x32: bool


# reach: io_uring_setup (a socket without socket(2)); ptrace, process_vm_readv/writev and pidfd_getfd (the memory or
# a socket of somebody else). namespaces: unshare and setns (back into the network).
NUMBERS: Final[dict[str, Numbers]] = {
    "x86_64": Numbers(
        architecture=0xC000003E,
        sockets=(41, 53),
        clone=56,
        clone3=435,
        processes=(57, 58, 59, 322),
        reach=(425, 101, 310, 311, 438),
        namespaces=(272, 308),
        has_x32=True,
    ),
    "aarch64": Numbers(
        architecture=0xC00000B7,
        sockets=(198, 199),
        clone=220,
        clone3=435,
        processes=(221, 281),
        reach=(425, 117, 270, 271, 438),
        namespaces=(97, 268),
        has_x32=False,
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def build(numbers: Numbers, *, processes: bool) -> bytes:
    """The program, 8 bytes an instruction.

    `processes`: also refuse fork, clone without a thread, exec, and new namespaces. A template goes without that part,
    because it forks, and its children still need their own network namespace.

    `clone3` answers ENOSYS, because its flags lie in memory where no filter can look; the C library then uses
    `clone` for its threads, which is looked at.
    """
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    allow = _step(_RETURN, _ALLOW)
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQ, numbers.architecture, 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _NUMBER),
    ]
    if numbers.has_x32:  # the x32 door has the same architecture but other numbers
        steps += [_step(_JUMP_GE, _X32_BIT, 0, 1), _step(_RETURN, _KILL_PROCESS)]
    denied = numbers.reach + (numbers.processes + numbers.namespaces if processes else ())
    for number in denied:
        steps += [_step(_JUMP_EQ, number, 0, 1), refuse]
    if processes:
        steps += [_step(_JUMP_EQ, numbers.clone3, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
        steps += [
            _step(_JUMP_EQ, numbers.clone, 0, 4),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_JUMP_SET, _CLONE_THREAD, 0, 1),
            allow,
            refuse,
        ]
    for number in numbers.sockets:
        steps += [
            _step(_JUMP_EQ, number, 0, 4),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_JUMP_EQ, socket.AF_UNIX, 0, 1),
            allow,
            _step(_RETURN, _ERRNO | errno.EACCES),
        ]
    return b"".join([*steps, allow])


def install(*, processes: bool) -> None:
    """Put the filter on this thread and all that it makes.

    Raises:
        OSError: the kernel refused it, or this architecture has no table (ENOSYS).
    """
    numbers = NUMBERS.get(kernel.machine())
    if numbers is None:
        raise OSError(errno.ENOSYS, f"no system call table for {kernel.machine()}")
    code = build(numbers, processes=processes)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, ctypes.byref(program))
