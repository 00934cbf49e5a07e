"""Findings about configuration: the model type is known, documents are readable, enough positions (spec A8, A9)."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final

from adapters.formats.evidence import UNREADABLE
from adapters.inspect.code_checks import remote_code_findings
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding
from adapters.inspect.subject import Subject, member
from bus.messages.artifacts import FileFormat
from bus.messages.gates import Finding

CONFIG: Final = "config.json"
# Read when they are there: one that is no JSON object ends the load.
_OPTIONAL: Final = (
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
)
# Model types whose positions begin behind the padding token's id (RoBERTa's position ids).
_SHIFTED_POSITIONS: Final = frozenset(
    {"camembert", "data2vec-text", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xmod"}
)
# Where a configuration says how many tokens a model has positions for; nested ones are the decoder's or the text's.
_POSITION_KEYS: Final = ("max_position_embeddings", "n_positions", "max_target_positions")
_NESTED: Final = ("text_config", "decoder")
_TEXT_TASKS: Final = frozenset({"embedding", "reranking", "text_generation"})
_MAX_TYPE_CHARS: Final = 80


def config_findings(subject: Subject, folder: str) -> Iterator[Finding]:
    """The config.json of `folder` is there, readable, and names a model type that the environment declares."""
    path = member(folder, CONFIG)
    if path not in subject.paths:
        yield finding(Code.CONFIG_MISSING, "blocker", f"the set has no {path}", "manifest")
        return
    config = subject.document(path) or {}
    if model_type(config) is None:
        yield finding(Code.CONFIG_UNREADABLE, "blocker", f"{path} names no model type", path)
        return
    declared = subject.adapter.model_types if subject.adapter is not None else ()
    types = _model_types(config)
    unknown = [name for name in types if name not in declared]
    if declared and unknown:
        yield _type_finding(subject, path, unknown)
    yield from remote_code_findings(subject, folder, native=bool(declared) and not unknown)
    if config.get("transformers_weights") is not None:
        message = f"{path} names a file of its own choice for the weights"
        yield finding(Code.LOADER_OPTION_REFUSED, "blocker", message, f"{path}: transformers_weights")
    yield from document_findings(subject, folder)


def model_type(config: dict[str, Any]) -> str | None:
    """The model type that a configuration names."""
    value = config.get("model_type")
    return value[:_MAX_TYPE_CHARS] if isinstance(value, str) and value else None


def _model_types(config: dict[str, Any]) -> list[str]:
    """The configuration's own type, and those of an encoder and a decoder that are models of their own."""
    found = [model_type(config)]
    if model_type(config) in {"vision-encoder-decoder", "encoder-decoder", "speech-encoder-decoder"}:
        parts = [config.get(key) for key in ("encoder", "decoder")]
        found += [model_type(part) for part in parts if isinstance(part, dict)]
    return [name for name in found if name is not None]


def _type_finding(subject: Subject, path: str, unknown: list[str]) -> Finding:
    version = subject.packages.get("transformers")
    knows = f"{subject.profile.adapter} does not declare the model type {' and '.join(unknown)}"
    if version is not None:
        knows += f"; transformers {version} is installed on {subject.node.name}"
    return finding(Code.MODEL_TYPE_NOT_DECLARED, "blocker", knows, f"{path}: model_type")


def document_findings(subject: Subject, folder: str, but: Container[str] = ()) -> Iterator[Finding]:
    """Documents beside the configuration that the runtime reads when they are there: each is a JSON object.

    Args:
        subject: the set.
        folder: one folder of it.
        but: names that are looked at elsewhere.
    """
    for path in (member(folder, name) for name in _OPTIONAL if name not in but):
        if path not in subject.paths or subject.document(path) is not None:
            continue
        kept = path in subject.evidence.documents
        # One that is JSON and was not kept was too large, which is no fault; the scan's note says so.
        if kept or subject.format_of(path) in {FileFormat.TEXT, FileFormat.BINARY} or _broken(subject, path):
            yield finding(Code.CONFIG_UNREADABLE, "blocker", f"{path} is no JSON object", path)


def _broken(subject: Subject, path: str) -> bool:
    return subject.evidence.problems.get(path) == UNREADABLE


def sequence_findings(subject: Subject, config: dict[str, Any]) -> Iterator[Finding]:
    """Does the model have positions for as many tokens as the profile wants?"""
    found = _positions(config)
    if found is None:
        return
    positions, key = found
    wanted = subject.profile.max_sequence_length
    # Where the text is a caption or an answer, the runtime cuts it: a loss, not a crash.
    severity: Severity = "blocker" if subject.profile.task in _TEXT_TASKS else "warning"
    if positions < wanted:
        message = f"the profile wants {wanted} tokens, the model has positions for {positions}"
        yield finding(Code.SEQUENCE_TOO_LONG, severity, message, f"config.json: {key}")


def _positions(config: dict[str, Any]) -> tuple[int, str] | None:
    nested = [config.get(key) for key in _NESTED]
    for part in (config, *(part for part in nested if isinstance(part, dict))):
        for key in _POSITION_KEYS:
            value = part.get(key)
            if type(value) is int and value > 0:
                return max(1, value - _shift(part)), key
    return None


def _shift(config: dict[str, Any]) -> int:
    if model_type(config) not in _SHIFTED_POSITIONS:
        return 0
    padding = config.get("pad_token_id", 1)
    return padding + 1 if type(padding) is int and 0 <= padding < 16 else 2  # noqa: PLR2004 -- a sane id, else its default
