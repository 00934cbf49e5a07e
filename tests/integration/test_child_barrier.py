"""Each layer by itself, in real processes: what it stops, as root and as nobody, and that it says so (spec P11)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.listener import listening

NOBODY = 65534

# Everything is imported before the uid is dropped: the interpreter may lie where nobody can read.
SCRIPT = """
import ctypes, encodings.idna, json, os, socket, struct, subprocess, sys, threading
from adapters.child import barrier, guard, kernel, limits
uid, layer, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
seen = []
if layer == "namespace":
    layers = [barrier.enter_network_namespace()]
elif layer == "filter":
    layers = barrier.install_filter(processes=True)
elif layer == "guard":
    watch = guard.install(lambda call, family: seen.append(f"{call} {family}"), processes=True)
    layers = []
else:
    layers = []
libc = ctypes.CDLL(None, use_errno=True)
def attempt(call):
    try:
        return ["done", call()]
    except BaseException as error:
        return [type(error).__name__, getattr(error, "errno", None)]
def native():
    sock = libc.socket(2, 1, 0)
    where = struct.pack("=H", 2) + struct.pack("!H4s8x", port, bytes((127, 0, 0, 1)))
    if sock < 0 or libc.connect(sock, where, 16):
        raise OSError(ctypes.get_errno(), "native")
def thread():
    done = []
    runner = threading.Thread(target=done.append, args=(1,)); runner.start(); runner.join()
    return done
result = {
    "python": attempt(lambda: socket.create_connection(("127.0.0.1", port), 2).close()),
    "raw": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()),
    "udp": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))),
    "bind": attempt(lambda: socket.socket(socket.AF_INET6).bind(("::1", 0))),
    "native": attempt(native),
    "unix": attempt(lambda: [end.close() for end in socket.socketpair()] and None),
    "fork": attempt(lambda: (pid := os.fork()) == 0 and os._exit(0) or os.waitpid(pid, 0)[1]),
    "exec": attempt(lambda: subprocess.run(["/bin/true"]).returncode),
    "thread": attempt(thread),
    "uid": os.getuid(),
    "layers": [[one.name, one.active, one.detail] for one in layers],
    "seen": seen,
}
print(json.dumps(result))
"""


def run(layer: str, port: int, uid: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(uid), layer, str(port)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(params=[0, NOBODY])
def uid(request: pytest.FixtureRequest) -> int:
    if os.getuid() not in {0, request.param}:
        pytest.skip("only root can be another user")
    return int(request.param) if os.getuid() == 0 else os.getuid()


def test_without_any_layer_everything_is_possible(uid: int) -> None:
    """The control: what the next tests see refused really works here."""
    with listening() as listener:
        found = run("none", listener.port, uid)
        assert listener.visitors() == 2
    for name in ("python", "udp", "native", "unix", "fork", "exec", "thread"):
        assert found[name][0] == "done", name


@pytest.mark.req("P11")
def test_an_empty_network_namespace_reaches_nobody(uid: int) -> None:
    with listening() as listener:
        found = run("namespace", listener.port, uid)
        assert listener.visitors() == 0
    ((name, active, detail),) = found["layers"]
    if not active:
        pytest.skip(f"this machine refuses it: {detail}")
    assert name == "network_namespace"
    assert found["uid"] == uid
    assert (detail == "unshare") == (uid == 0)
    for way in ("python", "udp", "native"):
        assert found[way][0] == "OSError", way
    assert found["unix"][0] == found["thread"][0] == "done"


@pytest.mark.req("P11")
@pytest.mark.req("P6")
def test_the_filter_alone_refuses_sockets_and_processes(uid: int) -> None:
    with listening() as listener:
        found = run("filter", listener.port, uid)
        assert listener.visitors() == 0
    assert [(name, active) for name, active, _ in found["layers"]] == [
        ("seccomp_sockets", True),
        ("seccomp_processes", True),
    ]
    for way in ("python", "raw", "udp", "bind", "native", "fork", "exec"):
        assert found[way][0] == "PermissionError", way
    assert found["unix"][0] == found["thread"][0] == "done"


@pytest.mark.req("P11")
def test_the_guard_alone_refuses_and_names_what_python_does_and_is_no_barrier(uid: int) -> None:
    with listening() as listener:
        found = run("guard", listener.port, uid)
        assert listener.visitors() == 1  # the native call: why the kernel layers are there
    for way in ("python", "raw", "udp", "bind"):
        assert found[way][0] == "GuardRefusal", way
    assert found["fork"][0] == found["exec"][0] == "PermissionError"
    assert found["seen"] == [
        "socket.getaddrinfo name",
        "socket.__new__ raw",
        "socket.__new__ inet",
        "socket.__new__ inet6",
        "os.fork process",
        "subprocess.Popen process",
    ]
    assert found["unix"][0] == found["thread"][0] == "done"
