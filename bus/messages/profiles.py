"""Where and how a set runs: the runtime environment of a node, and the runtime profile (spec A8, G1, M3)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from bus.digest import digest_of
from bus.messages.artifacts import Digest, Name
from bus.messages.base import Line, Moment, Natural, Positive, Record

Task = Literal[
    "embedding",
    "reranking",
    "text_generation",
    "image_to_text",
    "image_text_similarity",
    "speech_recognition",
    "image_generation",
]


class AdapterFacts(Record, frozen=True, kw_only=True):
    """One adapter as a node declares it. Declared support is never proven support (spec A2).

    Attributes:
        executable: it can be run here now; `reason` says why not.
        inspect_only: this version of the product cannot run it anywhere; it is assessed, never probed.
        quantizations: methods such as `gptq` or `Q4_K_M` that it declares; empty means none.
    """

    name: Line
    version: Line
    executable: bool
    reason: Line | None = None
    tasks: tuple[Line, ...] = ()
    modalities: tuple[Line, ...] = ()
    model_types: Annotated[tuple[Line, ...], msgspec.Meta(max_length=2_000)] = ()
    formats: tuple[Line, ...] = ()
    quantizations: tuple[Line, ...] = ()
    inspect_only: bool = False


class RuntimeEnvironment(Record, frozen=True, kw_only=True):
    """The interpreter or image, and the packages, in which a node's child processes run; its digest is its identity."""

    python: Line
    platform: Line
    packages: Annotated[dict[Line, Line], msgspec.Meta(max_length=2_000)]
    adapters: tuple[AdapterFacts, ...]
    image: Line | None = None

    def digest(self) -> str:
        """`sha256:<hex>` of the canonical JSON of this environment."""
        return digest_of(self)


class EnvironmentView(Record, frozen=True, kw_only=True):
    """A stored environment. `version` counts the environments that this ledger has seen, from 1; `nodes` have it now."""

    id: Digest
    version: Positive
    environment: RuntimeEnvironment
    first_seen_at: Moment
    nodes: tuple[Name, ...] = ()


class Budgets(Record, frozen=True, kw_only=True):
    """Time budgets of a probe's phases, and of all of them together."""

    preparing_s: Positive = 300
    loading_s: Positive = 300
    healthchecking_s: Positive = 60
    unloading_s: Positive = 30
    total_s: Positive = 900


class Preprocessing(Record, frozen=True, kw_only=True):
    """What is done to an input before the model sees it (spec M3).

    Attributes:
        overlong_text: a text of more tokens than the profile's length is cut, or refused.
        image_size_px: edge of the square that an image is brought to; `None`: what the processor's files say.
        image_mode: the colour mode that every image is converted to.
    """

    overlong_text: Literal["truncate", "refuse"] = "truncate"
    image_size_px: Positive | None = None
    image_mode: Literal["rgb"] = "rgb"


class AudioSemantics(Record, frozen=True, kw_only=True):
    """What a sound is, and what is asked of it (spec M3). More channels than one are mixed down before anything else."""

    sampling_rate_hz: Positive = 16_000
    window_s: Positive = 30
    overlong_audio: Literal["refuse", "truncate", "split"] = "refuse"
    purpose: Literal["transcribe", "translate"] = "transcribe"
    language: Line | None = None
    timestamps: bool = False


class RuntimeProfile(Record, frozen=True, kw_only=True):
    """How a set is to be run. Immutable: another value is another profile (spec G1).

    Attributes:
        quantization: the method that the weights must be evidenced to have, such as `gptq` or `Q4_K_M`; `None`: none.
        memory_margin_mib: memory of the device that must stay free beside the estimate.
        preprocessing, audio: `None` where the task has nothing to preprocess, or no sound.
    """

    name: Name
    adapter: str = "sentence_transformers"
    task: Task = "embedding"
    device: Literal["cpu", "cuda"] = "cpu"
    gpu_uuid: str | None = None
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    batch_size: Positive = 1
    max_sequence_length: Positive = 256
    normalize: bool = True
    threads: Positive = 1
    memory_limit_mib: Positive = 8_192
    reclaim_tolerance_mib: Natural = 64
    budgets: Budgets = Budgets()
    quantization: Line | None = None
    memory_margin_mib: Natural = 256
    preprocessing: Preprocessing | None = None
    audio: AudioSemantics | None = None

    def digest(self) -> str:
        """`sha256:<hex>` of the canonical JSON of this profile.

        A field that is younger than the first profiles counts only where it says something else than its default:
        so the profiles of an older ledger keep their identity.
        """
        fields: dict[str, Any] = msgspec.to_builtins(self)
        for name, default in _YOUNGER_FIELDS.items():
            if fields[name] == default:
                del fields[name]
        return digest_of(fields)


_YOUNGER_FIELDS: Final[dict[str, Any]] = {
    "quantization": None,
    "memory_margin_mib": 256,
    "preprocessing": None,
    "audio": None,
}


class ProfileView(Record, frozen=True, kw_only=True):
    """A stored profile. `version` counts the contents that its name has stood for, from 1."""

    id: Digest
    profile: RuntimeProfile
    created_at: Moment
    created_by: str
    version: Positive = 1
