"""Cards and their memory through NVML, each call in a thread with a deadline (spec P7).

Everything is keyed by UUID: NVML's index is not CUDA's. A reading that a card does not give is `None` with the
reason, never 0. The functions block up to their deadline; call them in a thread of the event loop's pool.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bus.messages.evidence import GpuProcess, GpuSample
from bus.messages.inventory import GpuFacts

CALL_S: Final = 10.0
MAX_CARDS: Final = 64
# After these the library's state is of no use; the next call starts it anew.
_POISONED: Final = frozenset(
    {
        "NVMLError_Uninitialized",
        "NVMLError_Unknown",
        "NVMLError_GpuIsLost",
        "NVMLError_LibRmVersionMismatch",
        "NVMLError_DriverNotLoaded",
        "NVMLError_ResetRequired",
    }
)

_WORDS: Final = {
    "NVMLError_LibraryNotFound": "no NVIDIA driver on this machine (its library libnvidia-ml.so.1 is not there)",
    "NVMLError_LibRmVersionMismatch": "the NVIDIA driver was updated under the running system (restart it)",
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is not loaded",
    "NVMLError_NotSupported": "not supported by this card",
    "NVMLError_FunctionNotFound": "not known to this driver",
    "NVMLError_NoPermission": "no permission",
    "NVMLError_GpuIsLost": "the card is lost",
    "NVMLError_NotFound": "no card of this UUID",
}

T = TypeVar("T")


class NvmlUnavailableError(Exception):
    """NVML cannot be asked now; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The cards of this machine. `reason` says why there are none, or which one could not be read."""

    gpus: tuple[GpuFacts, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    reason: str | None = None


class _Library:
    """The one NVML of this process: opened once and kept open, because opening can take seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stuck: threading.Event | None = None
        self._open = False
        self.module: Any = None

    def call(self, work: Callable[[Any], T], timeout_s: float) -> T:
        """Run `work(pynvml)` in a thread of its own.

        Raises:
            NvmlUnavailableError: no library, no driver, an error of the whole library, or no answer in time. While a
                call hangs, every other one is refused at once, so that threads do not pile up.
        """
        with self._lock:
            if self._stuck is not None and not self._stuck.is_set():
                raise NvmlUnavailableError("an earlier NVML call has not answered yet")
            done = threading.Event()
            results: list[T] = []
            errors: list[BaseException] = []
            # A daemon, so that a call that never returns cannot keep the agent from ending.
            thread = threading.Thread(target=self._run, args=(work, results, errors, done), daemon=True, name="nvml")
            thread.start()
            if not done.wait(timeout_s):
                self._stuck = done
                raise NvmlUnavailableError(f"NVML did not answer within {timeout_s:g} s")
        if errors:
            raise errors[0]
        return results[0]

    def _run(
        self,
        work: Callable[[Any], T],
        results: list[T],
        errors: list[BaseException],
        done: threading.Event,
    ) -> None:
        try:
            results.append(work(self._opened()))
        except NvmlUnavailableError as error:
            errors.append(error)
        except Exception as error:  # noqa: BLE001 -- it goes to the caller's thread, typed
            self._close_if_poisoned(error)
            errors.append(NvmlUnavailableError(reason_of(error)))
        finally:
            done.set()

    def _opened(self) -> Any:
        if self.module is None:
            try:
                self.module = importlib.import_module("pynvml")
            except ImportError as error:
                raise NvmlUnavailableError("the package nvidia-ml-py is not installed") from error
        if not self._open:
            self.module.nvmlInit()
            self._open = True
        return self.module

    def _close_if_poisoned(self, error: Exception) -> None:
        if self._open and type(error).__name__ in _POISONED:
            self._open = False
            # A library in this state may refuse to close as well; the next call opens it anew in any case.
            with contextlib.suppress(self.module.NVMLError):
                self.module.nvmlShutdown()


_LIBRARY: Final = _Library()


def reason_of(error: BaseException) -> str:
    """A short reason: NVML's own class (the words differ by version), or the exception's class."""
    name = type(error).__name__
    return _WORDS.get(name, name.replace("NVMLError_", "NVML: "))


def discover(timeout_s: float = CALL_S) -> Discovery:
    """The cards, the driver and its CUDA version. Never raises: what is not there is the reason."""
    try:
        return _LIBRARY.call(_discover, timeout_s)
    except NvmlUnavailableError as error:
        return Discovery(reason=str(error))


def _discover(nvml: Any) -> Discovery:
    gpus: list[GpuFacts] = []
    problems: list[str] = []
    for index in range(min(nvml.nvmlDeviceGetCount(), MAX_CARDS)):
        try:
            gpus.append(_facts(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError as error:
            problems.append(f"card {index}: {reason_of(error)}")
    if not gpus and not problems:
        problems.append("the driver knows no card")
    version = _optional(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2, {}, "cuda")
    return Discovery(
        gpus=tuple(gpus),
        driver_version=_optional(nvml, lambda: _text(nvml.nvmlSystemGetDriverVersion()), {}, "driver"),
        cuda_version=f"{version // 1000}.{version % 1000 // 10}" if version is not None else None,
        reason="; ".join(problems) or None,
    )


def _facts(nvml: Any, handle: Any) -> GpuFacts:
    missing: dict[str, str] = {}
    capability = _optional(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle), missing, "capability")
    memory = _optional(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle), missing, "memory")
    return GpuFacts(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_total_bytes=int(memory.total) if memory is not None else None,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability is not None else None,
    )


@dataclass(slots=True)
class Gpu:
    """One card during one probe.

    The two memory calls of NVML count differently: the first includes what the driver reserves. So the call that
    answered first is kept for the whole life of this object; a later failure of it is a missing reading, never the
    other call's figure.
    """

    uuid: str
    timeout_s: float = CALL_S
    _version: int | None = field(default=None, init=False)

    def sample(self, pids: Collection[int]) -> GpuSample:
        """One reading; `pids` are the processes of the probe, all others on the card are foreign. Never raises."""
        try:
            return _LIBRARY.call(lambda nvml: self._sample(nvml, frozenset(pids)), self.timeout_s)
        except NvmlUnavailableError as error:
            return GpuSample(uuid=self.uuid, unavailable={"nvml": str(error)})

    def _sample(self, nvml: Any, pids: frozenset[int]) -> GpuSample:
        handle = nvml.nvmlDeviceGetHandleByUUID(self.uuid)
        missing: dict[str, str] = {}
        memory = self._memory(nvml, handle, missing)
        own, foreign = self._processes(nvml, handle, pids, missing)
        power = _optional(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle), missing, "power_milliwatts")
        return GpuSample(
            uuid=self.uuid,
            used_bytes=int(memory.used) if memory is not None else None,
            free_bytes=int(memory.free) if memory is not None else None,
            total_bytes=int(memory.total) if memory is not None else None,
            process_bytes=own,
            utilization_percent=_optional(
                nvml, lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu), missing, "utilization_percent"
            ),
            temperature_celsius=_optional(
                nvml,
                lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                missing,
                "temperature_celsius",
            ),
            power_milliwatts=power,
            foreign=foreign,
            unavailable=missing,
        )

    def _memory(self, nvml: Any, handle: Any, missing: dict[str, str]) -> Any:
        calls: dict[int, Callable[[], Any]] = {
            2: lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
            1: lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
        }
        for version in (2, 1) if self._version is None else (self._version,):
            memory = _optional(nvml, calls[version], missing, "memory")
            if memory is not None:
                missing.pop("memory", None)
                self._version = version
                if version == 1:
                    missing["reserved_memory"] = "this driver counts it as used"
                return memory
        return None

    @staticmethod
    def _processes(
        nvml: Any, handle: Any, pids: frozenset[int], missing: dict[str, str]
    ) -> tuple[int | None, tuple[GpuProcess, ...]]:
        """Memory of our processes, and everybody else. A card may list a process as computing and as drawing."""
        listed: dict[int, int | None] = {}
        for name in ("Compute", "Graphics"):
            found = _optional(nvml, getattr(nvml, f"nvmlDeviceGet{name}RunningProcesses"), missing, "processes", handle)
            for process in found or ():
                listed[int(process.pid)] = process.usedGpuMemory
        ours = [used for pid, used in listed.items() if pid in pids]
        known = [used for used in ours if used is not None]
        if not ours:
            missing.setdefault("process_bytes", "the driver lists no process of the probe")
        elif len(known) < len(ours):
            missing["process_bytes"] = "the driver does not tell the memory of a process"
        foreign = tuple(GpuProcess(pid=pid, used_bytes=used) for pid, used in sorted(listed.items()) if pid not in pids)
        return sum(known) if ours and len(known) == len(ours) else None, foreign


def _optional(nvml: Any, call: Callable[..., T], missing: dict[str, str], name: str, *arguments: Any) -> T | None:
    """A reading that a card may not have. Errors that spoil the whole library are not caught here."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if type(error).__name__ in _POISONED - {"NVMLError_Unknown"}:
            raise
        missing[name] = reason_of(error)
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
