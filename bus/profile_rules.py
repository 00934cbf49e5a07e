"""What the values of a runtime profile must have to do with each other (spec A8, G1).

Pure: the command line asks the same rules before a profile is sent as the controller does before it is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import AudioSemantics, Budgets, RuntimeProfile
from bus.text import clean_line

# The largest sensible value of each figure: a typing error must not become a job of days or terabytes.
LARGEST: Final = {
    "batch_size": 65_536,
    "max_sequence_length": 1_048_576,
    "threads": 1_024,
    "memory_limit_mib": 16 * 1024 * 1024,
    "reclaim_tolerance_mib": 1024 * 1024,
    "memory_margin_mib": 1024 * 1024,
}
LONGEST_BUDGET_S: Final = 24 * 3_600
LARGEST_IMAGE_PX: Final = 16_384
HIGHEST_SAMPLING_RATE_HZ: Final = 768_000
LONGEST_WINDOW_S: Final = 3_600
AUDIO_TASKS: Final = frozenset({"speech_recognition"})
IMAGE_TASKS: Final = frozenset({"image_to_text", "image_text_similarity", "image_generation"})
MAX_ADAPTER_CHARS: Final = 64
MAX_SHOWN_CHARS: Final = 100
# Said to whoever asks for a device that may change: the type of the field takes only the two.
NO_FALLBACK: Final = (
    "a profile is for cpu or for cuda: one for cuda never runs on a CPU, not even where no card is free. "
    "For both, make two profiles"
)
_METHOD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?\Z")
_GPU_UUID: Final = re.compile(r"[!-~]{1,64}\Z")


def check(profile: RuntimeProfile) -> None:
    """Pass if the profile's values go together.

    Raises:
        ModelForgeError: INVALID_ARGUMENT naming the first rule that is broken.
    """
    for problem in problems(profile):
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, problem)


def problems(profile: RuntimeProfile) -> Iterator[str]:
    """Every broken rule, as a sentence."""
    for name, largest in LARGEST.items():
        if getattr(profile, name) > largest:
            yield f"{name} must be at most {largest}"
    if not profile.adapter.isidentifier() or len(profile.adapter) > MAX_ADAPTER_CHARS:
        yield "adapter is a name such as sentence_transformers"
    if profile.quantization is not None and _METHOD.match(profile.quantization) is None:
        yield "quantization is the name of a method such as gptq or Q4_K_M"
    yield from _device(profile)
    yield from _inputs(profile)
    yield from _budgets(profile.budgets)


def _device(profile: RuntimeProfile) -> Iterator[str]:
    if profile.gpu_uuid is None:
        return
    if profile.device != "cuda":
        yield "gpu_uuid belongs to a profile with the device cuda"
    if _GPU_UUID.match(profile.gpu_uuid) is None:
        yield "gpu_uuid is no UUID of a card"


def _inputs(profile: RuntimeProfile) -> Iterator[str]:
    """Words on an input that the task never has would be without effect: they are refused, not left unread."""
    if profile.audio is not None:
        if profile.task not in AUDIO_TASKS:
            yield f"audio belongs to a profile of the task {_listed(AUDIO_TASKS)}; this one's is {profile.task}"
        yield from _audio(profile.audio)
    if profile.preprocessing is None:
        return
    size = profile.preprocessing.image_size_px
    if profile.task in AUDIO_TASKS:
        yield f"preprocessing is of texts and images; the task {profile.task} has neither"
    elif size is not None and profile.task not in IMAGE_TASKS:
        yield (
            "preprocessing.image_size_px belongs to a profile of one of the tasks "
            f"{_listed(IMAGE_TASKS)}; this one's is {profile.task}"
        )
    if size is not None and size > LARGEST_IMAGE_PX:
        yield f"preprocessing.image_size_px must be at most {LARGEST_IMAGE_PX}"


def _audio(audio: AudioSemantics) -> Iterator[str]:
    if audio.sampling_rate_hz > HIGHEST_SAMPLING_RATE_HZ:
        yield f"audio.sampling_rate_hz must be at most {HIGHEST_SAMPLING_RATE_HZ}"
    if audio.window_s > LONGEST_WINDOW_S:
        yield f"audio.window_s must be at most {LONGEST_WINDOW_S}"
    if audio.language is not None and _LANGUAGE.match(audio.language) is None:
        yield "audio.language is a code such as en or pt-BR"


def _budgets(budgets: Budgets) -> Iterator[str]:
    phases = (budgets.preparing_s, budgets.loading_s, budgets.healthchecking_s, budgets.unloading_s)
    if max(*phases, budgets.total_s) > LONGEST_BUDGET_S:
        yield f"a budget must be at most {LONGEST_BUDGET_S} s"
    if max(phases) > budgets.total_s:
        yield "no phase's budget may be greater than total_s"


def _listed(tasks: frozenset[str]) -> str:
    return ", ".join(sorted(tasks))


def differences(before: RuntimeProfile, after: RuntimeProfile) -> tuple[str, ...]:
    """Which fields of two profiles differ, each from what to what; a field of a part by its dotted name."""
    return tuple(_differences(msgspec.to_builtins(before), msgspec.to_builtins(after), ""))


def _differences(before: dict[str, Any], after: dict[str, Any], prefix: str) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name} from {_shown(old)} to {_shown(new)}"


def _shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case dict():
            return "{" + ", ".join(f"{key} = {_shown(entry)}" for key, entry in value.items()) + "}"
    return clean_line(str(value), MAX_SHOWN_CHARS)
