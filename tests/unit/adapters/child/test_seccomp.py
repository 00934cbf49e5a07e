"""The filter's program, run by a small interpreter of the same instructions."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from adapters.child.seccomp import NUMBERS, build

ALLOW, KILL = 0x7FFF0000, 0x80000000
THREAD_FLAGS = 0x3D0F00  # what the C library passes for a thread
FORK_FLAGS = 0x1200011  # SIGCHLD and two thread-id flags


def decide(program: bytes, architecture: int, number: int, first_argument: int = 0) -> int:
    data = struct.pack("=iIQQ", number if number < 2**31 else number - 2**32, architecture, 0, first_argument)
    steps = list(struct.iter_unpack("=HBBI", program))
    place = value = 0
    while True:
        code, if_true, if_false, operand = steps[place]
        place += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == 0x06:
            return int(operand)
        else:
            test = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            place += if_true if test else if_false


def refusal(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.req("P11")
@pytest.mark.parametrize("machine", list(NUMBERS))
@pytest.mark.parametrize("processes", [True, False])
def test_sockets(machine: str, processes: bool) -> None:
    numbers = NUMBERS[machine]
    program = build(numbers, processes=processes)
    for call in numbers.sockets:
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_PACKET, socket.AF_NETLINK, socket.AF_VSOCK, 0):
            assert decide(program, numbers.architecture, call, family) == refusal(errno.EACCES)
        assert decide(program, numbers.architecture, call, socket.AF_UNIX) == ALLOW


@pytest.mark.req("P6")
@pytest.mark.parametrize("machine", list(NUMBERS))
def test_processes_are_refused_and_threads_are_not(machine: str) -> None:
    numbers = NUMBERS[machine]
    program = build(numbers, processes=True)
    for call in numbers.processes + numbers.namespaces + numbers.reach:
        assert decide(program, numbers.architecture, call) == refusal(errno.EPERM)
    assert decide(program, numbers.architecture, numbers.clone, FORK_FLAGS) == refusal(errno.EPERM)
    assert decide(program, numbers.architecture, numbers.clone, THREAD_FLAGS) == ALLOW
    assert decide(program, numbers.architecture, numbers.clone3) == refusal(errno.ENOSYS)


@pytest.mark.parametrize("machine", list(NUMBERS))
def test_a_template_may_fork_but_not_reach_into_others(machine: str) -> None:
    numbers = NUMBERS[machine]
    program = build(numbers, processes=False)
    assert decide(program, numbers.architecture, numbers.clone, FORK_FLAGS) == ALLOW
    assert decide(program, numbers.architecture, numbers.namespaces[0]) == ALLOW
    for call in numbers.reach:
        assert decide(program, numbers.architecture, call) == refusal(errno.EPERM)


@pytest.mark.parametrize("machine", list(NUMBERS))
def test_everything_else_is_allowed_and_another_architecture_ends_the_process(machine: str) -> None:
    numbers = NUMBERS[machine]
    program = build(numbers, processes=True)
    special = {*numbers.sockets, numbers.clone, numbers.clone3, *numbers.processes, *numbers.reach, *numbers.namespaces}
    for number in set(range(470)) - special:
        assert decide(program, numbers.architecture, number) == ALLOW
    assert decide(program, 0x40000003, 102) == KILL


def test_the_x32_door_is_shut() -> None:
    """It has the same architecture and other numbers, so that a list of numbers alone misses it."""
    numbers = NUMBERS["x86_64"]
    assert decide(build(numbers, processes=True), numbers.architecture, 0x40000000 | 41, socket.AF_INET) == KILL


def test_the_program_fits_the_kernel() -> None:
    for numbers in NUMBERS.values():
        assert len(build(numbers, processes=True)) // 8 < 4096
