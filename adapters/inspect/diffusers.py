"""The Diffusers inspector: a whole pipeline by its model_index.json; an embedding repository is none (spec A16)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters.inspect import code_checks, config_checks, memory, pickle_checks, weight_checks
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.conclusion import common_findings, conclude
from adapters.inspect.content_checks import Loads, content_findings
from adapters.inspect.memory_checks import memory_findings
from adapters.inspect.subject import ROOT, Inspection, Subject, member, shown
from adapters.inspect.tokenizer_checks import TOKENIZER, TOKENIZER_FILES, whole_findings
from adapters.inspect.weights import Choice, choose
from bus.messages.gates import Finding

NAME: Final = "diffusers"
PACKAGES: Final = ("diffusers", "torch")
PIPELINE: Final = "model_index.json"
_MAX_COMPONENTS: Final = 64
_MAX_NAME_CHARS: Final = 80
# By the end of a component's class: the file that it is read from, instead of a config.json and weights.
_SETTINGS: Final = (
    ("Scheduler", ("scheduler_config.json",)),
    ("Tokenizer", TOKENIZER_FILES),
    ("TokenizerFast", TOKENIZER_FILES),
    ("FeatureExtractor", ("preprocessor_config.json",)),
    ("ImageProcessor", ("preprocessor_config.json", "processor_config.json")),
    ("ImageProcessorFast", ("preprocessor_config.json", "processor_config.json")),
    ("Processor", ("processor_config.json", "preprocessor_config.json")),
)
# What weights are called, by the library whose class it is.
_STEMS: Final = {"transformers": "model"}
_DIFFUSERS_STEM: Final = "diffusion_pytorch_model"
_EMBEDDING_MARKS: Final[tuple[str, ...]] = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
_EMBEDDING_HEADS: Final = ("Model", "ForMaskedLM")


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a pipeline: its folder is its name."""

    name: str
    library: str
    kind: str

    @property
    def settings(self) -> tuple[str, ...] | None:
        """The files of which it needs one; `None` for a model, which needs a config.json and weights."""
        return next((files for end, files in _SETTINGS if self.kind.endswith(end)), None)

    @property
    def stem(self) -> str:
        """What its weights are called."""
        return _STEMS.get(self.library, _DIFFUSERS_STEM)


def inspect(subject: Subject) -> Inspection:
    """What speaks against the pipeline. What Diffusers can do with its classes is known to Diffusers alone."""
    parts = components(subject)
    models = [part for part in parts if part.settings is None]
    chosen = [(part, choose(subject, part.name, _stem_of(subject, part))) for part in models]
    weights = [facts for _, choice in chosen for facts in weight_checks.good(choice)]
    expected = memory.estimate(subject, weights, {})
    folders = frozenset({ROOT, *(part.name for part in parts)})
    unpickled = {path for _, choice in chosen if not weight_checks.good(choice) for path in choice.pickles}
    found: list[Finding] = [
        *common_findings(subject, PACKAGES),
        *pipeline_findings(subject),
        *content_findings(subject, Loads(folders, pickle_checks.loaded_endings(subject))),
        *weight_checks.corrupt_findings(subject),
        *(item for part in parts for item in _component_findings(subject, part)),
        *(item for part, choice in chosen for item in _weight_findings(subject, part, choice)),
        *weight_checks.format_findings(subject, "safetensors"),
        *weight_checks.index_findings(subject),
        *pickle_checks.verdict_findings(subject, frozenset(unpickled if pickle_checks.loads_pickle(subject) else ())),
        *code_checks.code_findings(subject),
        *memory_findings(subject, expected),
    ]
    return conclude(subject, found, expected, claims=False)


def components(subject: Subject) -> tuple[Component, ...]:
    """The parts that model_index.json names; one that is `[null, null]` is optional and absent by design."""
    found = []
    for name, value in list((subject.document(PIPELINE) or {}).items())[: 2 * _MAX_COMPONENTS]:
        match value:
            case [str(library), str(kind)] if not name.startswith("_"):
                found.append(Component(name[:_MAX_NAME_CHARS], library[:_MAX_NAME_CHARS], kind[:_MAX_NAME_CHARS]))
            case _:
                continue
    return tuple(found[:_MAX_COMPONENTS])


def pipeline_findings(subject: Subject) -> Iterator[Finding]:
    """There is a pipeline, it names its class and parts, and the folder is no embedding model."""
    document = subject.document(PIPELINE)
    if PIPELINE not in subject.paths:
        yield finding(Code.NO_PIPELINE, "blocker", f"the set has no {PIPELINE}", "manifest")
    elif document is None or not isinstance(document.get("_class_name"), str | list):
        yield finding(Code.NO_PIPELINE, "blocker", f"{PIPELINE} names no pipeline class", PIPELINE)
    elif not components(subject):
        yield finding(Code.NO_PIPELINE, "blocker", f"{PIPELINE} names no part", PIPELINE)
    marks = _embedding_marks(subject)
    if marks and (document is None or "modules.json" in subject.paths):
        message = f"the folder is an embedding model: {shown(marks)}"
        yield finding(Code.EMBEDDING_REPOSITORY, "blocker", message, "manifest; config.json")
    if document is not None and isinstance(document.get("_class_name"), list):
        message = f"{PIPELINE} names a pipeline class of the folder's own"
        yield finding(Code.REMOTE_CODE_REQUIRED, "blocker", message, f"{PIPELINE}: _class_name")


def _embedding_marks(subject: Subject) -> list[str]:
    found: list[str] = [name for name in _EMBEDDING_MARKS if name in subject.paths]
    found += sorted(folder for folder in subject.folders if folder.endswith("_Pooling"))
    classes = (subject.document("config.json") or {}).get("architectures")
    named = [str(name)[:_MAX_NAME_CHARS] for name in classes[:3]] if isinstance(classes, list) else []
    return found + [name for name in named if name.endswith(_EMBEDDING_HEADS)]


def _component_findings(subject: Subject, part: Component) -> Iterator[Finding]:
    source = f"{PIPELINE}: {part.name}"
    if f"{part.name}/{part.library}.py" in subject.paths:
        message = f"{part.name} is a class of the folder's own, {part.library}.{part.kind}"
        yield finding(Code.REMOTE_CODE_REQUIRED, "blocker", message, source)
        return
    names = subject.in_folder(part.name)
    if not subject.has_folder(part.name):
        yield _missing(f"the set has no folder {part.name} for {part.kind}", source)
    elif part.settings is not None and not names.intersection(part.settings):
        yield _missing(f"{part.name} has none of {shown(part.settings)}", source)
    elif part.settings is None and subject.document(member(part.name, "config.json")) is None:
        yield _missing(f"{part.name}/config.json is absent or no JSON object", source)
    else:
        yield from _document_findings(subject, part)


def _document_findings(subject: Subject, part: Component) -> Iterator[Finding]:
    """The part is made from these files: one that cannot be read ends the load, as an absent one does."""
    needed = [name for name in part.settings or () if name.endswith("_config.json")]
    for path in (member(part.name, name) for name in needed):
        if path in subject.paths and subject.document(path) is None:
            message = f"{path} is no JSON object, or the scan could not read it"
            yield finding(Code.CONFIG_UNREADABLE, "blocker", message, path)
    yield from config_checks.document_findings(subject, part.name, but=needed)
    if part.settings == TOKENIZER_FILES and TOKENIZER in subject.in_folder(part.name):
        yield from whole_findings(subject, member(part.name, TOKENIZER), {})


def _weight_findings(subject: Subject, part: Component, choice: Choice) -> Iterator[Finding]:
    if not subject.has_folder(part.name):
        return
    has = bool(weight_checks.good(choice))
    yield from pickle_checks.folder_findings(subject, choice, good=has)
    if has and choice.duplicates:
        message = f"{part.name}: {choice.by} is loaded; not loaded: {shown(choice.duplicates)}"
        yield finding(Code.DUPLICATE_WEIGHTS, "warning", message, "weight headers")
    if has or choice.pickles:
        return
    variants = [name for name in (*choice.duplicates, *choice.strays) if _is_variant(name)]
    source = f"{PIPELINE}: {part.name}"
    if variants:
        message = f"{part.name} has its weights only as a variant, which must be asked for by name: {shown(variants)}"
        yield _missing(message, source)
    else:
        yield _missing(f"{part.name} has no readable {part.stem}.safetensors", source)


def _missing(message: str, source: str) -> Finding:
    return finding(Code.PIPELINE_COMPONENT_MISSING, "blocker", message, source)


def _is_variant(name: str) -> bool:
    return len(name.rpartition("/")[2].split(".")) > 2  # noqa: PLR2004 -- a name, a variant and an ending


def _stem_of(subject: Subject, part: Component) -> str:
    """A class that a pipeline brings itself is of Transformers when its weights are called so."""
    if part.library not in _STEMS and part.library != NAME and "model.safetensors" in subject.in_folder(part.name):
        return "model"
    return part.stem
