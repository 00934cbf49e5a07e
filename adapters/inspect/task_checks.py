"""Findings about the model's head: is the model made for the profile's task (spec A13)?

A runtime that misses a head makes a random one, and the answers look like answers. Tensors that are tied to others
are legitimately absent from the files, so the head is judged by the class that the configuration names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.config_checks import model_type
from adapters.inspect.subject import Subject
from bus.messages.gates import Finding
from bus.messages.profiles import Task

SOURCE: Final = "config.json: architectures"
_MAX_NAME_CHARS: Final = 80
# Endings of the class names with which a model can do a task.
_HEADS: Final[dict[Task, str]] = {
    "embedding": r"(Model|ForMaskedLM|ForPreTraining|ForCausalLM|LMHeadModel|Encoder|EncoderModel|ForTextEncoding)",
    "reranking": r"ForSequenceClassification",
    "text_generation": r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|ForSeq2SeqLM)",
    "image_to_text": r"(VisionEncoderDecoderModel|ForConditionalGeneration|ForImageTextToText|ForVision2Seq|ForCausalLM)",
    "image_text_similarity": r"Model",
    "speech_recognition": r"(ForConditionalGeneration|ForSpeechSeq2Seq|SpeechEncoderDecoderModel|ForCTC)",
    "image_generation": r"(Pipeline|Transformer2DModel|UNet2DConditionModel)",
}
# A class that is a body without a head: the task's head would be made of random numbers.
_BODY: Final = re.compile(r"(?<!Decoder)(?<!LMHead)Model\Z|EncoderModel\Z")
_HEARS: Final = re.compile(
    r"whisper|wav2vec|hubert|speech|wavlm|seamless|moonshine|parakeet|unispeech|sew|audio|voxtral|kyutai"
)
_SEES_KEYS: Final = ("vision_config", "image_token_id", "image_token_index")
_SEES: Final = re.compile(r"vit\Z|vision|clip|blip|image|swin|deit|trocr|donut|pix2struct|kosmos|git\Z")
_ONLY_SEES: Final = frozenset({"deit", "swin", "trocr", "vision-encoder-decoder", "vit"})
_DEFAULT_LABELS: Final = 2


def task_findings(subject: Subject, config: dict[str, Any]) -> Iterator[Finding]:
    """Does a class that the configuration names fit the task, and does the model take the task's kind of input?"""
    task = subject.profile.task
    if not config:
        return
    names = _architectures(config)
    if not names:
        if task == "reranking":
            message = "config.json names no class, so nothing shows that the model has the head that scores"
            yield finding(Code.HEAD_MISSING, "warning", message, SOURCE)
        yield from _input_findings(task, config, "the model")
        return
    fitting = [name for name in names if re.search(rf"{_HEADS[task]}\Z", name)]
    if not fitting:
        yield _unfit(task, names)
        return
    if task == "reranking":
        yield from _label_findings(config)
    yield from _input_findings(task, config, fitting[0])


def _unfit(task: Task, names: list[str]) -> Finding:
    if all(_BODY.search(name) for name in names):
        message = f"{names[0]} has no head for {task}; a runtime would make one of random numbers"
        return finding(Code.HEAD_MISSING, "blocker", message, SOURCE)
    message = f"{', '.join(names[:3])} is not made for {task}"
    return finding(Code.TASK_MISMATCH, "blocker", message, SOURCE)


def _label_findings(config: dict[str, Any]) -> Iterator[Finding]:
    labels = label_count(config)
    if labels != 1:
        message = f"a reranker gives one score, this model classifies into {labels} labels"
        yield finding(Code.TASK_MISMATCH, "blocker", message, "config.json: id2label")


def label_count(config: dict[str, Any]) -> int:
    """How many labels a classification head has; the library's default when the configuration says nothing."""
    labels = config.get("id2label")
    if isinstance(labels, dict) and labels:
        return len(labels)
    count = config.get("num_labels")
    return count if type(count) is int and count > 0 else _DEFAULT_LABELS


def _input_findings(task: Task, config: dict[str, Any], name: str) -> Iterator[Finding]:
    """The class alone does not tell: a text model and a speech model may share the ending of their names."""
    model = model_type(config)
    hears, sees = hears_sound(config), sees_images(config)
    # A model of several kinds of input describes its text in a part of its own.
    reads = isinstance(config.get("text_config"), dict)
    wrong = None
    if task == "speech_recognition" and not hears:
        wrong = "hears no sound"
    elif task in {"image_to_text", "image_text_similarity"} and not sees:
        wrong = "sees no image"
    elif task in {"embedding", "reranking", "text_generation"} and hears and not reads:
        wrong = "hears sound and reads no text"
    elif task == "image_text_similarity" and not (reads or _pair(model)):
        wrong = "has no part that reads text"
    elif task == "embedding" and model in _ONLY_SEES:
        wrong = "sees images and reads no text"
    if wrong is not None:
        message = f"{name}, of the model type {model}, {wrong}; the task is {task}"
        yield finding(Code.TASK_MISMATCH, "blocker", message, "config.json: model_type")


def _pair(model_type: Any) -> bool:
    return isinstance(model_type, str) and bool(re.search(r"clip|siglip|align\Z|flava|altclip", model_type))


def hears_sound(config: dict[str, Any]) -> bool:
    """Does the configuration name a model that takes sound?"""
    encoder = config.get("encoder")
    nested = encoder.get("model_type") if isinstance(encoder, dict) else None
    return any(_HEARS.search(name) for name in (config.get("model_type"), nested) if isinstance(name, str))


def sees_images(config: dict[str, Any]) -> bool:
    """Does the configuration name a model that takes images?"""
    if any(config.get(key) is not None for key in _SEES_KEYS):
        return True
    encoder = config.get("encoder")
    nested = encoder.get("model_type") if isinstance(encoder, dict) else None
    names = (config.get("model_type"), nested)
    return any(_SEES.search(name) or _pair(name) for name in names if isinstance(name, str))


def _architectures(config: dict[str, Any]) -> list[str]:
    value = config.get("architectures")
    return [name[:_MAX_NAME_CHARS] for name in value[:8] if isinstance(name, str)] if isinstance(value, list) else []
