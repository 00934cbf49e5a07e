"""The guard's decisions, without installing it: a hook can never be taken off this process again."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.child.guard import MAX_REPORTED, Guard, GuardRefusal

INET = SimpleNamespace(family=socket.AF_INET)
UNIX = SimpleNamespace(family=socket.AF_UNIX)


def guard(seen: list[str], *, processes: bool = True) -> Guard:
    return Guard(lambda call, family: seen.append(f"{call} {family}"), processes=processes)


@pytest.mark.req("P11")
@pytest.mark.parametrize(
    ("event", "arguments", "family"),
    [
        ("socket.connect", (INET, ("10.0.0.1", 443)), "inet"),
        ("socket.connect", (SimpleNamespace(family=socket.AF_INET6), ("::1", 443)), "inet6"),
        ("socket.bind", (INET, ("", 0)), "inet"),
        ("socket.sendto", (INET, ("10.0.0.1", 53)), "inet"),
        ("socket.sendmsg", (INET, None), "inet"),
        ("socket.getaddrinfo", ("example.invalid", 443, 0, 0, 0), "name"),
        ("socket.gethostbyname", ("example.invalid",), "name"),
        ("socket.gethostbyaddr", ("10.0.0.1",), "name"),
        ("socket.getnameinfo", (("10.0.0.1", 80),), "name"),
        ("socket.__new__", (None, socket.AF_INET, socket.SOCK_STREAM, 0), "inet"),
        ("socket.__new__", (None, socket.AF_INET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 1), "raw"),
        ("socket.__new__", (None, socket.AF_PACKET, socket.SOCK_DGRAM, 0), "raw"),
        ("socket.__new__", (None, socket.AF_NETLINK, socket.SOCK_DGRAM, 0), "netlink"),
        ("socket.__new__", (None, socket.AF_VSOCK, socket.SOCK_STREAM, 0), "other"),
    ],
)
def test_refuses_and_reports_before_it_raises(event: str, arguments: tuple[Any, ...], family: str) -> None:
    seen: list[str] = []
    with pytest.raises(GuardRefusal):
        guard(seen).hook(event, arguments)
    assert seen == [f"{event} {family}"]


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("socket.connect", (UNIX, "/run/x")),
        ("socket.bind", (UNIX, "/run/x")),
        ("socket.__new__", (None, socket.AF_UNIX, socket.SOCK_STREAM, 0)),
        ("socket.__new__", (None, -1, -1, -1)),
        ("socket.gethostname", ()),
        ("open", ("x", "r", 0)),
        ("import", ("torch", None, None, None, None)),
    ],
)
def test_leaves_everything_else_alone(event: str, arguments: tuple[Any, ...]) -> None:
    seen: list[str] = []
    guard(seen).hook(event, arguments)
    assert seen == []


@pytest.mark.req("P11")
def test_what_it_raises_is_nothing_that_a_library_retries() -> None:
    assert not issubclass(GuardRefusal, Exception)


@pytest.mark.req("P11")
@pytest.mark.parametrize("event", ["subprocess.Popen", "os.system", "os.fork", "os.exec", "os.posix_spawn"])
def test_processes_are_recorded_and_refused_as_the_kernel_does(event: str) -> None:
    seen: list[str] = []
    made = guard(seen)
    with pytest.raises(PermissionError):
        made.hook(event, ("x",))
    assert seen == [f"{event} process"]
    assert (made.process_attempts, made.network_attempts) == (1, 0)
    guard(seen, processes=False).hook(event, ("x",))
    assert len(seen) == 1


def test_a_flood_of_attempts_is_counted_and_reported_up_to_a_bound() -> None:
    seen: list[str] = []
    made = guard(seen)
    for _ in range(MAX_REPORTED + 10):
        with pytest.raises(GuardRefusal):
            made.hook("socket.getaddrinfo", ())
    assert len(seen) == MAX_REPORTED
    assert made.network_attempts == MAX_REPORTED + 10


def test_a_forked_child_starts_with_counts_of_its_own() -> None:
    seen: list[str] = []
    made = guard([])
    with pytest.raises(GuardRefusal):
        made.hook("socket.getaddrinfo", ())
    made.retarget(lambda call, _family: seen.append(call), processes=True)
    assert made.network_attempts == 0
    with pytest.raises(GuardRefusal):
        made.hook("socket.getaddrinfo", ())
    assert seen == ["socket.getaddrinfo"]
