"""A test double: an adapter without a model library, whose faults lie as options beside the "model".

It is known to the registry only where the node's settings ask for it. Its faults are read from `faults.json` in the
model folder: a list of `{"stage": ..., "kind": ..., "amount": ..., "text": ...}`.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from adapters.base import LoadReport, ModelRequest, ProbeReport, RuntimeAdapter
from adapters.payloads import EMBEDDING_INPUT, REPEAT_COSINE, cosine, embedding_output
from bus.codec import decode
from bus.messages.base import Record
from bus.messages.evidence import Health
from bus.messages.profiles import RuntimeProfile

FAULTS_FILE: Final = "faults.json"
DIMENSIONS: Final = 16
_EVER_S: Final = 3_600.0

FaultStage = Literal["import", "load", "probe", "health", "unload"]
Kind = Literal[
    "slow",
    "hang",
    "hang_deaf",
    "crash",
    "exit",
    "raise",
    "memory",
    "noisy",
    "leak_input",
    "connect",
    "connect_swallowed",
    "connect_in_thread",
    "connect_native",
    "resolve",
    "subprocess",
    "fork_native",
    "write_file",
    "read_swallowed",
    "nan",
    "zero",
    "unstable",
    "unhealthy",
]


class Fault(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One fault: when, what, how much (milliseconds, bytes, exit code, signal or port), and a text."""

    stage: FaultStage
    kind: Kind
    amount: int = 0
    text: str = ""


class FaultyAdapter(RuntimeAdapter):
    """Answers with a fixed vector, after the faults of each stage."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._runs = 0
        self._profile: RuntimeProfile | None = None

    def inspect_support(self, profile: RuntimeProfile) -> tuple[str, ...]:
        """See `RuntimeAdapter.inspect_support`."""
        return () if profile.device == "cpu" else ("the test double runs on the CPU",)

    def prepare(self, request: ModelRequest) -> None:
        """See `RuntimeAdapter.prepare`."""
        file = request.model_path / FAULTS_FILE
        self._faults = decode(file.read_bytes(), tuple[Fault, ...]) if file.is_file() else ()
        self._profile = request.profile
        self._act("import")

    def start(self) -> LoadReport:
        """See `RuntimeAdapter.start`."""
        self._act("load")
        length = self._profile.max_sequence_length if self._profile else 0
        return LoadReport(device="cpu", max_sequence_length=length, allocator_bytes=None)

    def probe(self) -> ProbeReport:
        """See `RuntimeAdapter.probe`."""
        self._act("probe")
        first, second = self._vector(), self._vector()
        return ProbeReport(
            output=embedding_output(first, second, "float32"),
            repeatable=cosine(first, second) >= REPEAT_COSINE,
            inference_ms=1.0,
            repeat_inference_ms=1.0,
            allocator_peak_bytes=None,
        )

    def health(self) -> Health:
        """See `RuntimeAdapter.health`."""
        self._act("health")
        return Health(runtime="healthy", model="unhealthy" if self._has("unhealthy") else "healthy")

    def stop(self) -> None:
        """See `RuntimeAdapter.stop`."""

    def unload(self) -> None:
        """See `RuntimeAdapter.unload`."""
        self._act("unload")

    def collect_runtime_facts(self) -> dict[str, str]:
        """See `RuntimeAdapter.collect_runtime_facts`."""
        return {"test_double": "yes"}

    def _has(self, kind: Kind) -> bool:
        return any(fault.kind == kind for fault in self._faults)

    def _vector(self) -> list[float]:
        """A unit vector of shape (DIMENSIONS,)."""
        self._runs += 1
        if self._has("nan"):
            return [math.nan] * DIMENSIONS
        if self._has("zero"):
            return [0.0] * DIMENSIONS
        sign = -1.0 if self._has("unstable") and self._runs % 2 == 0 else 1.0
        return [sign * 0.25] * DIMENSIONS

    def _act(self, stage: FaultStage) -> None:
        for fault in self._faults:
            if fault.stage == stage and fault.kind in _ACTIONS:
                _ACTIONS[fault.kind](fault)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _hang_deaf(_: Fault) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _wait(_EVER_S)


def _crash(fault: Fault) -> None:
    os.kill(os.getpid(), fault.amount or signal.SIGSEGV)


def _raise(fault: Fault) -> None:
    raise RuntimeError(fault.text)


def _noisy(fault: Fault) -> None:
    line = (fault.text or "noise " * 15 + "\n").encode()
    for descriptor in (1, 2):
        for _ in range(max(1, fault.amount // len(line) // 2)):
            os.write(descriptor, line)


def _leak_input(_: Fault) -> None:
    sys.stderr.write(f"could not tokenize {EMBEDDING_INPUT}\n")


def _connect(fault: Fault) -> None:
    with socket.create_connection(("127.0.0.1", fault.amount), timeout=1):
        pass


def _connect_swallowed(fault: Fault) -> None:
    try:
        _connect(fault)
    except BaseException as error:  # noqa: BLE001 -- a library that swallows everything is what is played here
        sys.stderr.write(f"swallowed {type(error).__name__}\n")


def _connect_in_thread(fault: Fault) -> None:
    thread = threading.Thread(target=_connect_swallowed, args=(fault,))
    thread.start()
    thread.join()


def _connect_native(fault: Fault) -> None:
    """Past Python and every audit hook, as a compiled extension would do it."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.socket(int(socket.AF_INET), int(socket.SOCK_STREAM), 0)
    where = struct.pack("=H", int(socket.AF_INET)) + struct.pack("!H4s8x", fault.amount, bytes((127, 0, 0, 1)))
    result = libc.connect(descriptor, where, len(where))
    sys.stderr.write(f"native socket {descriptor} connect {result} errno {ctypes.get_errno()}\n")


def _resolve(_: Fault) -> None:
    socket.getaddrinfo("localhost", 80)


def _subprocess(fault: Fault) -> None:
    code = f"import socket; socket.create_connection(('127.0.0.1', {fault.amount}), 1)"
    try:
        subprocess.run([sys.executable, "-P", "-c", code], check=False, timeout=10)
    except OSError as error:
        sys.stderr.write(f"subprocess refused: {error.strerror}\n")


def _fork_native(_: Fault) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    pid = libc.fork()
    if pid == 0:
        _wait(_EVER_S)
        os._exit(0)
    sys.stderr.write(f"native fork {pid} errno {ctypes.get_errno()}\n")


def _write_file(fault: Fault) -> None:
    """`text` is the path, with `{pid}` for this process; `amount` is what is written."""
    Path(fault.text.format(pid=os.getpid())).write_text(str(fault.amount), encoding="utf-8")


def _read_swallowed(fault: Fault) -> None:
    """`text` is the path of a file that is read, whatever comes of it."""
    try:
        Path(fault.text).read_bytes()
    except OSError as error:
        sys.stderr.write(f"swallowed {type(error).__name__}\n")


_ACTIONS: Final[dict[Kind, Callable[[Fault], object]]] = {
    "slow": lambda fault: _wait(fault.amount / 1_000),
    "hang": lambda _: _wait(_EVER_S),
    "hang_deaf": _hang_deaf,
    "crash": _crash,
    "exit": lambda fault: os._exit(fault.amount),
    "raise": _raise,
    "memory": lambda fault: bytearray(fault.amount),
    "noisy": _noisy,
    "leak_input": _leak_input,
    "connect": _connect,
    "connect_swallowed": _connect_swallowed,
    "connect_in_thread": _connect_in_thread,
    "connect_native": _connect_native,
    "resolve": _resolve,
    "subprocess": _subprocess,
    "fork_native": _fork_native,
    "write_file": _write_file,
    "read_swallowed": _read_swallowed,
}
