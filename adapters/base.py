"""`RuntimeAdapter`: what an executable adapter is (spec P14).

An adapter lives in a child process and for one model. Its methods are called in this order, once each:
`inspect_support`, `prepare`, `start`, `collect_runtime_facts`, `probe`, `health`, `stop`, `unload`. It may raise
anything: `adapters.child.failures` turns what it raises into a code. Importing the module of an adapter must stay
light; its libraries are imported in `prepare`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from bus.messages.evidence import Health, Output
from bus.messages.profiles import RuntimeProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What to run: a verified folder, an immutable profile, and the one folder that may be written."""

    model_path: Path
    scratch_path: Path
    profile: RuntimeProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The model as it stands in memory. `allocator_bytes` is the device allocator's figure, `None` on a CPU."""

    device: str
    max_sequence_length: int
    allocator_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Two runs of the fixed input.

    Attributes:
        output: the evidence of the first run.
        repeatable: did the second run give the same answer (cosine at least `payloads.REPEAT_COSINE`)?
        inference_ms: duration of the first run, with its warm-up.
        repeat_inference_ms: duration of the second run.
        allocator_peak_bytes: highest figure of the device allocator since the load, `None` on a CPU.
    """

    output: Output
    repeatable: bool
    inference_ms: float
    repeat_inference_ms: float
    allocator_peak_bytes: int | None


class RuntimeAdapter(ABC):
    """One runtime, for one model."""

    @abstractmethod
    def inspect_support(self, profile: RuntimeProfile) -> tuple[str, ...]:
        """Why this adapter cannot run `profile`, one sentence each; empty when it can. Nothing is imported."""

    @abstractmethod
    def prepare(self, request: ModelRequest) -> None:
        """Import the libraries and check the device; nothing is loaded.

        Raises:
            ModelForgeError: RUNTIME_INCOMPATIBLE when the device of the profile is not there.
        """

    @abstractmethod
    def start(self) -> LoadReport:
        """Load the model from the exact local path (spec P11).

        Raises:
            ModelForgeError: MODEL_LOAD_FAILED, or INVALID_OUTPUT when parts of the model are not in its files.
        """

    @abstractmethod
    def probe(self) -> ProbeReport:
        """Run the fixed input twice."""

    @abstractmethod
    def health(self) -> Health:
        """Run the model again and report the runtime and model layers (spec P13); process is the parent's."""

    @abstractmethod
    def stop(self) -> None:
        """Take no more work."""

    @abstractmethod
    def unload(self) -> None:
        """Drop the model. Process death is the real boundary (spec P6)."""

    @abstractmethod
    def collect_runtime_facts(self) -> dict[str, str]:
        """Versions and facts about what was loaded; no path, no input."""
