"""Findings about the files of a set: configuration, weights, shards, pickle and foreign code (spec A3, A4, A9, A10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from adapters.formats.evidence import INDEX_SUFFIX
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.subject import Subject
from adapters.loader_options import TRANSFORMER_CONFIGS, refused_options
from bus.messages.gates import Finding

# Any one of them is a tokenizer on disk; `tokenizer_config.json` alone is not.
TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
CONFIG: Final = "config.json"
_SHOWN: Final = 5


def config_findings(subject: Subject, folder: str) -> Iterator[Finding]:
    """The config.json of `folder` is there, readable, and names a model type that the environment declares."""
    path = member(folder, CONFIG)
    if path not in subject.paths:
        yield finding(Code.CONFIG_MISSING, "blocker", f"the set has no {path}", "manifest")
        return
    config = subject.document(path) or {}
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        yield finding(Code.CONFIG_UNREADABLE, "blocker", f"{path} names no model type", path)
        return
    declared = subject.adapter.model_types if subject.adapter is not None else ()
    if declared and model_type not in declared:
        message = f"{subject.profile.adapter} does not declare the model type {model_type}"
        yield finding(Code.MODEL_TYPE_NOT_DECLARED, "blocker", message, f"{path}: model_type")
    if config.get("auto_map") and model_type not in declared:
        message = f"the model type {model_type} needs code from outside the runtime"
        yield finding(Code.REMOTE_CODE_REQUIRED, "blocker", message, f"{path}: auto_map")
    if config.get("transformers_weights") is not None:
        message = f"{path} names a file of its own choice for the weights"
        yield finding(Code.LOADER_OPTION_REFUSED, "blocker", message, f"{path}: transformers_weights")
    if config.get("quantization_config"):
        message = "the weights are quantized, the profile asks for none"
        yield finding(Code.QUANTIZED_WEIGHTS, "blocker", message, f"{path}: quantization_config")


def option_findings(subject: Subject, folder: str) -> Iterator[Finding]:
    """No `sentence_*_config.json` hands the library arguments that could name files outside the set."""
    for path in (member(folder, name) for name in TRANSFORMER_CONFIGS):
        if path not in subject.paths:
            continue
        refused = refused_options(subject.evidence.documents.get(path))
        if refused:
            message = f"{path} sets what this version passes on to no loader: {shown([key[:40] for key in refused])}"
            yield finding(Code.LOADER_OPTION_REFUSED, "blocker", message, path)


def tokenizer_findings(subject: Subject, folder: str) -> Iterator[Finding]:
    """Without a tokenizer's files a runtime may invent one and answer nonsense with a straight face."""
    if not any(member(folder, name) in subject.paths for name in TOKENIZER_FILES):
        message = f"the model's folder has none of {', '.join(TOKENIZER_FILES)}"
        yield finding(Code.TOKENIZER_MISSING, "blocker", message, "manifest")


def weight_findings(subject: Subject, folders: tuple[str, ...]) -> Iterator[Finding]:
    """No weight file is corrupt; each of `folders` holds Safetensors, complete by their index; never unapproved pickle."""
    for facts in subject.evidence.weights:
        if facts.problem is not None and facts.format != "unknown":
            yield finding(Code.WEIGHTS_CORRUPT, "blocker", f"{facts.path}: {facts.problem}", f"header of {facts.path}")
    for folder in folders:
        yield from _folder_findings(subject, folder)
    yield from _format_findings(subject)
    yield from _shard_findings(subject)


def _folder_findings(subject: Subject, folder: str) -> Iterator[Finding]:
    weights = [facts for facts in subject.evidence.weights if str(PurePosixPath(facts.path).parent) == folder]
    good = [facts for facts in weights if facts.format == "safetensors" and facts.problem is None and facts.tensors]
    pickles = [facts.path for facts in weights if facts.format == "pickle"]
    if pickles and good:
        message = f"not loaded: {shown(pickles)}"
        yield finding(Code.PICKLE_BESIDE_WEIGHTS, "warning", message, "manifest")
    elif pickles and not _declares(subject, "pickle"):
        # Before the question of an approval: no approval makes this adapter load them, so the probe could only fail.
        message = f"{subject.profile.adapter} does not load pickle, approved or not: {shown(pickles)}"
        yield finding(Code.PICKLE_NOT_LOADED, "blocker", message, "manifest")
    elif pickles and "pickle" in subject.approved:
        message = f"approved for this exact set: {shown(pickles)}"
        yield finding(Code.PICKLE_APPROVED, "warning", message, "approval for the purpose pickle")
    elif pickles:
        message = f"the weights are pickle, which runs code when it is loaded: {shown(pickles)}"
        yield finding(Code.PICKLE_NOT_APPROVED, "blocker", message, "manifest")
    elif not good:
        where = "the set's own folder" if folder == "." else folder
        yield finding(Code.NO_WEIGHTS, "blocker", f"no readable Safetensors weights in {where}", "manifest")


def _declares(subject: Subject, format_: str) -> bool:
    return subject.adapter is not None and format_ in subject.adapter.formats


def _format_findings(subject: Subject) -> Iterator[Finding]:
    declared = subject.adapter.formats if subject.adapter is not None else ()
    formats = {facts.format for facts in subject.evidence.weights if facts.problem is None} - {"pickle", "unknown"}
    foreign = sorted(formats - set(declared))
    if formats and foreign == sorted(formats):
        message = f"{subject.profile.adapter} does not declare {', '.join(foreign)}"
        yield finding(Code.FORMAT_NOT_DECLARED, "blocker", message, "weight headers")


def _shard_findings(subject: Subject) -> Iterator[Finding]:
    for path in sorted(path for path in subject.paths if path.endswith(f".safetensors{INDEX_SUFFIX}")):
        index = subject.document(path)
        if index is None or index.get("problem") or not index.get("files"):
            yield finding(Code.SHARD_INDEX_UNREADABLE, "blocker", f"{path} maps no tensors to files", path)
            continue
        folder = PurePosixPath(path).parent
        absent = [name for name in index["files"] if str(folder / str(name)) not in subject.paths]
        if absent:
            message = f"{path} names files that the set lacks: {shown(absent)}"
            yield finding(Code.SHARD_MISSING, "blocker", message, path)


def code_findings(subject: Subject) -> Iterator[Finding]:
    """Code and adapter weights in the folder, and documents that the scan could not keep."""
    scripts = sorted(path for path in subject.paths if path.endswith(".py"))
    if scripts:
        yield finding(Code.CODE_IN_SET, "warning", f"never run: {shown(scripts)}", "manifest")
    # In any folder: each module of the set is loaded from its own.
    adapters = sorted(path for path in subject.paths if PurePosixPath(path).name == "adapter_config.json")
    if adapters:
        message = f"it makes the runtime look for a base model elsewhere: {shown(adapters)}"
        yield finding(Code.ADAPTER_WEIGHTS, "blocker", message, "manifest")
    for note in subject.evidence.notes[:_SHOWN]:
        yield finding(Code.EVIDENCE_INCOMPLETE, "warning", note, "scan notes")


def member(folder: str, name: str) -> str:
    """The path of a member of `folder`; the set's own folder is `.`."""
    return str(PurePosixPath(folder) / name)


def shown(names: list[str]) -> str:
    """At most five names, and how many more there are."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
