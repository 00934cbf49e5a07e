"""The Sentence Transformers inspector: safe Transformers files, modules.json and the pooling's config (spec A12).

Both generations of the layout are accepted: module types of the old path (`sentence_transformers.models.Pooling`)
and of the new one, pooling keys `word_embedding_dimension` and `embedding_dimension`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from adapters.inspect import (
    chain_checks,
    code_checks,
    config_checks,
    memory,
    parameter_checks,
    plausibility,
    quantization_checks,
    structure_checks,
    task_checks,
    tokenizer_checks,
    weight_checks,
)
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.conclusion import common_findings, conclude
from adapters.inspect.content_checks import Loads, content_findings
from adapters.inspect.memory_checks import memory_findings
from adapters.inspect.pickle_checks import loaded_endings
from adapters.inspect.subject import ROOT, Inspection, Subject, member
from bus.messages.gates import Finding

NAME: Final = "sentence_transformers"
PACKAGES: Final = ("sentence-transformers", "transformers", "torch")
MODULES: Final = "modules.json"
PROMPTS: Final = "config_sentence_transformers.json"
# Module -> does it need a folder of its own with a config.json? Normalize has nothing to configure.
MODULE_NEEDS_CONFIG: Final = {"Transformer": False, "Pooling": True, "Dense": True, "Normalize": False}
# Full names, of both generations: a last part alone may belong to any module of the library.
MODULE_TYPES: Final = frozenset(
    {
        *(f"sentence_transformers.models.{kind}" for kind in MODULE_NEEDS_CONFIG),
        *(f"sentence_transformers.models.{kind}.{kind}" for kind in MODULE_NEEDS_CONFIG),
        "sentence_transformers.base.modules.dense.Dense",
        "sentence_transformers.base.modules.normalize.Normalize",
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    }
)
_DIMENSION_KEYS: Final = ("word_embedding_dimension", "embedding_dimension")
_MAX_MODULES: Final = 32


@dataclass(frozen=True, slots=True)
class Module:
    """One line of modules.json: the last part of its type, the type as written, and its folder in the set."""

    kind: str
    type: str
    folder: str


def inspect(subject: Subject) -> Inspection:
    """All that static analysis can say about running the set under the profile on the node."""
    model, weighted = _folders(subject)
    config = subject.document(member(model, config_checks.CONFIG)) or {}
    weights = weight_checks.loaded_weights(subject, weighted)
    quantized = quantization_checks.evidenced(subject, model)
    expected = memory.estimate(subject, weights, config, quantized=quantized is not None)
    found: list[Finding] = [
        *common_findings(subject, PACKAGES),
        *config_checks.config_findings(subject, model),
        *plausibility.plausibility_findings(config, member(model, config_checks.CONFIG)),
        *quantization_checks.quantization_findings(subject, quantized, quantization_checks.PACKAGES),
        *tokenizer_checks.tokenizer_findings(subject, model, config),
        *code_checks.option_findings(subject, model),
        *chain_checks.value_findings(subject, model),
        *module_findings(subject, config),
        *content_findings(subject, _loads(subject, model, weighted)),
        *weight_checks.weight_findings(subject, weighted),
        *quantization_checks.dtype_findings(subject, weights, quantized),
        *(parameter_checks.parameter_findings(weights, config) if quantized is None else ()),
        *structure_checks.structure_findings(
            weight_checks.loaded_weights(subject, (model,)), config, quantized=quantized is not None
        ),
        *code_checks.code_findings(subject),
        *task_checks.task_findings(subject, config),
        *config_checks.sequence_findings(subject, config),
        *prompt_findings(subject),
        *memory_findings(subject, expected),
    ]
    return conclude(subject, found, expected, model_type=config_checks.model_type(config))


def modules(subject: Subject) -> tuple[Module, ...] | None:
    """The modules in their order; `None` when modules.json is not a list of them."""
    value = subject.evidence.documents.get(MODULES)
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_MODULES:
        return None
    parsed = []
    for entry in value:
        match entry:
            case {"type": str(type_), "path": str(path)}:
                parsed.append(Module(type_.rpartition(".")[2], type_, str(PurePosixPath(path)) if path else "."))
            case _:
                return None
    return tuple(parsed)


def module_findings(subject: Subject, config: dict[str, Any]) -> Iterator[Finding]:
    """modules.json names a Transformer and a Pooling, all modules are known, and their folders are in the set."""
    if MODULES not in subject.paths:
        message = "without modules.json the runtime invents a pooling"
        yield finding(Code.MODULES_MISSING, "blocker", message, "manifest")
        return
    found = modules(subject)
    if found is None or found[0].kind != "Transformer":
        message = "modules.json is not a list of modules that begins with a Transformer"
        yield finding(Code.MODULES_UNREADABLE, "blocker", message, MODULES)
        return
    for module in found:
        yield from _module_findings(subject, module)
    entries = subject.evidence.documents.get(MODULES)
    kinds, folders = [module.kind for module in found], [module.folder for module in found]
    yield from chain_checks.order_findings(entries, kinds, folders, MODULES)
    pooling = next((module for module in found if module.kind == "Pooling"), None)
    if pooling is None:
        yield finding(Code.POOLING_MISSING, "blocker", "modules.json names no Pooling", MODULES)
    else:
        yield from _pooling_findings(subject, pooling, config)
        yield from _dense_findings(subject, found, pooling, config)


def _module_findings(subject: Subject, module: Module) -> Iterator[Finding]:
    if module.type not in MODULE_TYPES:
        message = f"the module {module.type[:100]} is none that this version runs"
        yield finding(Code.MODULE_UNSUPPORTED, "blocker", message, MODULES)
    elif module.folder.startswith(("/", "..")) or "/../" in module.folder:
        message = f"the module {module.kind} lies outside the set"
        yield finding(Code.MODULE_UNSUPPORTED, "blocker", message, MODULES)
    elif module.kind == "Normalize" and not subject.has_folder(module.folder):
        message = f"the set has no folder {module.folder}; {module.kind} has nothing to read in it"
        yield finding(Code.MODULE_FOLDER_ABSENT, "note", message, MODULES)
    elif not subject.has_folder(module.folder):
        message = f"the set has no folder {module.folder} for {module.kind}"
        yield finding(Code.MODULE_FOLDER_MISSING, "blocker", message, MODULES)
    elif MODULE_NEEDS_CONFIG[module.kind] and subject.document(_config_of(module)) is None:
        code = Code.POOLING_MISSING if module.kind == "Pooling" else Code.CONFIG_MISSING
        message = f"{_config_of(module)} is absent or no JSON object"
        yield finding(code, "blocker", message, _config_of(module))


def _pooling_findings(subject: Subject, pooling: Module, model: dict[str, Any]) -> Iterator[Finding]:
    path = _config_of(pooling)
    config = subject.document(path)
    if config is None:
        return
    wanted = next((config[key] for key in _DIMENSION_KEYS if key in config), None)
    hidden = _hidden_size(model)
    if hidden is not None and wanted is not None and wanted != hidden:
        message = f"the pooling expects {wanted} dimensions, the model gives {hidden}"
        yield finding(Code.POOLING_MISMATCH, "blocker", message, path)
    if wanted is None:
        yield finding(Code.POOLING_MISMATCH, "blocker", "the pooling does not say its dimensions", path)
    yield from chain_checks.mode_findings(config, path)
    modes = [value for key, value in config.items() if key.startswith("pooling_mode")]
    if not any(modes):
        yield finding(Code.POOLING_MISMATCH, "blocker", "no pooling mode is chosen", path)


def _dense_findings(
    subject: Subject, found: tuple[Module, ...], pooling: Module, model: dict[str, Any]
) -> Iterator[Finding]:
    """Each Dense takes what the module before it gives."""
    modes = chain_checks.pooling_modes(subject.document(_config_of(pooling)) or {})
    width = (_hidden_size(model) or 0) * len(modes)
    for module in found:
        dense = subject.document(_config_of(module)) if module.kind == "Dense" else None
        if dense is not None:
            yield from chain_checks.dense_findings(dense, width, _config_of(module))
            width = plausibility.size_of(dense, "out_features")


def prompt_findings(subject: Subject) -> Iterator[Finding]:
    """A default prompt is put before every text where the model serves, but not before a probe's fixed input."""
    if PROMPTS in subject.paths and subject.document(PROMPTS) is None:
        yield finding(Code.CONFIG_UNREADABLE, "blocker", f"{PROMPTS} is no JSON object", PROMPTS)
    name = (subject.document(PROMPTS) or {}).get("default_prompt_name")
    if name is not None:
        message = f"the set puts its prompt {str(name)[:40]} before every text; a probe embeds the fixed input alone"
        yield finding(Code.DEFAULT_PROMPT, "warning", message, f"{PROMPTS}: default_prompt_name")


def _config_of(module: Module) -> str:
    return member(module.folder, config_checks.CONFIG)


def _hidden_size(model: dict[str, Any]) -> int | None:
    for key in ("hidden_size", "dim", "d_model"):
        value = model.get(key)
        if type(value) is int:
            return value
    return None


def _folders(subject: Subject) -> tuple[str, tuple[str, ...]]:
    """The Transformer's folder, and all folders that must hold weights; the set's own when modules.json says nothing."""
    found = modules(subject) or ()
    model = next((module.folder for module in found if module.kind == "Transformer"), ".")
    dense = [module.folder for module in found if module.kind == "Dense" and module.folder != model]
    return model, (model, *sorted(set(dense)))


def _loads(subject: Subject, model: str, weighted: tuple[str, ...]) -> Loads:
    folders = {model, *weighted, ROOT, *(module.folder for module in modules(subject) or ())}
    return Loads(frozenset(folders), loaded_endings(subject))
