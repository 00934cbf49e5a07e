"""Findings about what prepares an input and ends an answer: processors, generation, sound, image size (A9, M3).

Both layouts count: transformers 4 wrote `preprocessor_config.json`, transformers 5 writes `processor_config.json` with
the image processor or the feature extractor inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding
from adapters.inspect.subject import Subject, member
from bus.messages.gates import Finding
from bus.messages.profiles import AudioSemantics, Task

OLD: Final = "preprocessor_config.json"
NEW: Final = "processor_config.json"
GENERATION: Final = "generation_config.json"
IMAGE_TASKS: Final[frozenset[Task]] = frozenset({"image_to_text", "image_text_similarity"})
_GENERATES: Final[frozenset[Task]] = frozenset({"text_generation", "image_to_text", "speech_recognition"})
_PARTS: Final[dict[Task, str]] = {
    "image_to_text": "image_processor",
    "image_text_similarity": "image_processor",
    "speech_recognition": "feature_extractor",
}
_MAX_PIXELS: Final = 100_000


def processor_findings(subject: Subject, folder: str, config: dict[str, Any]) -> Iterator[Finding]:
    """The task's processor is there in one of the layouts, and what it says fits the model and the profile."""
    task = subject.profile.task
    yield from _generation_findings(subject, folder, config)
    part = _PARTS.get(task)
    if part is None:
        return
    found = _processor(subject, folder, part)
    if found is None:
        message = f"neither {member(folder, OLD)} nor {member(folder, NEW)} holds the {part.replace('_', ' ')}"
        yield finding(Code.PROCESSOR_MISSING, "blocker", message, "manifest")
    elif task == "speech_recognition":
        yield from _audio_findings(subject, folder, config, *found)
    else:
        yield from _image_findings(subject, config, *found)
    if found is None and task in IMAGE_TASKS:
        yield from _wanted_size_findings(subject, config, None)


def _processor(subject: Subject, folder: str, part: str) -> tuple[dict[str, Any], str] | None:
    """The settings of the image processor or feature extractor, and the file that holds them."""
    path = member(folder, NEW)
    inner = (subject.document(path) or {}).get(part)
    if isinstance(inner, dict):
        return inner, path
    old = member(folder, OLD)
    return (subject.document(old) or {}, old) if old in subject.paths else None


def _generation_findings(subject: Subject, folder: str, config: dict[str, Any]) -> Iterator[Finding]:
    path = member(folder, GENERATION)
    if subject.profile.task not in _GENERATES or path in subject.paths:
        return
    # Whisper without it answers, and what it answers is junk.
    severity: Severity = "blocker" if config.get("model_type") == "whisper" else "warning"
    message = f"the set has no {path}; the runtime generates with defaults of its own"
    yield finding(Code.GENERATION_CONFIG_MISSING, severity, message, "manifest")


def _audio_findings(
    subject: Subject, folder: str, config: dict[str, Any], extractor: dict[str, Any], path: str
) -> Iterator[Finding]:
    audio = subject.profile.audio or AudioSemantics()
    rate = extractor.get("sampling_rate")
    if type(rate) is int and rate != audio.sampling_rate_hz:
        message = f"the profile gives sound at {audio.sampling_rate_hz} Hz, the model hears {rate} Hz"
        yield finding(Code.AUDIO_MISMATCH, "blocker", message, f"{path}: sampling_rate")
    window = extractor.get("chunk_length")
    if type(window) is int and window != audio.window_s:
        message = f"the profile cuts windows of {audio.window_s} s, the model hears {window} s at once"
        severity: Severity = "blocker" if audio.window_s > window else "warning"
        yield finding(Code.AUDIO_MISMATCH, severity, message, f"{path}: chunk_length")
    bands, wanted = extractor.get("feature_size"), config.get("num_mel_bins")
    if type(bands) is int and type(wanted) is int and bands != wanted:
        message = f"the feature extractor gives {bands} bands, the model takes {wanted}"
        yield finding(Code.AUDIO_MISMATCH, "blocker", message, f"{path}: feature_size; config.json: num_mel_bins")
    yield from _language_findings(subject, folder, audio)


def _language_findings(subject: Subject, folder: str, audio: AudioSemantics) -> Iterator[Finding]:
    path = member(folder, GENERATION)
    generation = subject.document(path) or {}
    languages, one_language = generation.get("lang_to_id"), generation.get("is_multilingual") is False
    if one_language and audio.purpose == "translate":
        message = "the profile asks for a translation, the model knows one language"
        yield finding(Code.AUDIO_MISMATCH, "blocker", message, f"{path}: is_multilingual")
    if audio.language is not None and isinstance(languages, dict) and languages:
        known = {str(name).strip("<|>") for name in languages}
        if audio.language.lower() not in known:
            message = f"the profile asks for the language {audio.language}, the model has no token for it"
            yield finding(Code.AUDIO_MISMATCH, "blocker", message, f"{path}: lang_to_id")
    if audio.timestamps and generation and generation.get("no_timestamps_token_id") is None:
        message = "the profile asks for timestamps, the model names no token for their absence"
        yield finding(Code.AUDIO_MISMATCH, "blocker", message, f"{path}: no_timestamps_token_id")


def _image_findings(
    subject: Subject, config: dict[str, Any], processor: dict[str, Any], path: str
) -> Iterator[Finding]:
    made, takes = processed_size(processor), model_size(config)
    if made is not None and takes is not None and made != takes:
        message = f"the processor makes images of {made} px, the model takes {takes} px; only inference would fail"
        yield finding(Code.IMAGE_SIZE_MISMATCH, "blocker", message, f"{path}: size; config.json: image_size")
    yield from _wanted_size_findings(subject, config, made)


def _wanted_size_findings(subject: Subject, config: dict[str, Any], made: int | None) -> Iterator[Finding]:
    wanted = subject.profile.preprocessing.image_size_px if subject.profile.preprocessing is not None else None
    if wanted is None:
        return
    takes = model_size(config)
    if takes is not None and wanted != takes:
        message = f"the profile brings images to {wanted} px, the model takes {takes} px"
        yield finding(Code.IMAGE_SIZE_MISMATCH, "blocker", message, "profile: image_size_px; config.json: image_size")
    elif takes is None and made is not None and wanted != made:
        message = f"the profile brings images to {wanted} px, the processor to {made} px"
        yield finding(Code.IMAGE_SIZE_MISMATCH, "warning", message, "profile: image_size_px; processor: size")


def processed_size(processor: dict[str, Any]) -> int | None:
    """The edge in pixels of what an image processor makes; `None` when it makes no square of a fixed size."""
    if processor.get("do_resize") is False:
        return None
    crop = processor.get("crop_size") if processor.get("do_center_crop") else None
    return _edge(crop) if crop is not None else _edge(processor.get("size"), square=True)


def _edge(size: Any, *, square: bool = False) -> int | None:
    if type(size) is int:
        return _pixels(size)
    if not isinstance(size, dict):
        return None
    height, width = _pixels(size.get("height")), _pixels(size.get("width"))
    if height is not None and height == width:
        return height
    # A shortest edge alone leaves the other one open.
    return None if square else _pixels(size.get("shortest_edge"))


def model_size(config: dict[str, Any]) -> int | None:
    """The edge in pixels of the images that the model takes; `None` where it takes any, or does not say."""
    nested = [config.get(key) for key in ("vision_config", "encoder")]
    for part in (*(part for part in nested if isinstance(part, dict)), config):
        size = _edge(part.get("image_size"), square=True)
        if size is not None:
            return size
        value = part.get("image_size")
        if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:  # noqa: PLR2004 -- height and width
            return _pixels(value[0])
    return None


def _pixels(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < _MAX_PIXELS else None
