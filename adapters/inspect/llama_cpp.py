"""The llama.cpp inspector: one whole local GGUF variant; Safetensors alone are none (spec A15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters.inspect import code_checks, memory, pickle_checks, quantization_checks, weight_checks
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding
from adapters.inspect.conclusion import common_findings, conclude
from adapters.inspect.content_checks import GGUF_FILES, Loads, content_findings
from adapters.inspect.gguf_architectures import ARCHITECTURES, ENCODERS
from adapters.inspect.memory_checks import memory_findings
from adapters.inspect.quantization_checks import Evidenced
from adapters.inspect.subject import Inspection, Subject, folder_of, member, shown
from adapters.inspect.weights import gaps, shard_of
from bus.messages.artifacts import WeightFacts
from bus.messages.gates import Finding

NAME: Final = "llama_cpp"
PACKAGES: Final = ("llama-cpp-python",)
GGUF: Final = "gguf"
# File types of a GGUF that are plain numbers.
_PLAIN: Final = frozenset({"", "F32", "F16", "BF16", "ALL_F32", "MOSTLY_F16", "MOSTLY_BF16"})
# A projector for images lies beside the model that it belongs to; alone it is none.
_PROJECTOR: Final = "clip"
# `LLAMA_POOLING_TYPE` of llama.h.
_NO_POOLING: Final = frozenset({"0", "none"})
_RANK_POOLING: Final = frozenset({"4", "rank"})
_MAX_WORD_CHARS: Final = 60


@dataclass(frozen=True, slots=True)
class Variant:
    """One model as GGUF: one file, or the parts of a split one, the first part first."""

    name: str
    files: tuple[WeightFacts, ...]
    absent: tuple[str, ...]

    @property
    def metadata(self) -> dict[str, str]:
        """Header facts of the first part, which holds them all."""
        return self.files[0].metadata

    @property
    def quantization(self) -> str:
        """Its file type, such as `Q4_K_M`; empty when the header names none."""
        return self.metadata.get("quantization", "")[:_MAX_WORD_CHARS].upper()


def inspect(subject: Subject) -> Inspection:
    """What speaks against the set. What llama.cpp can do with an architecture is known to llama.cpp alone."""
    found_variants = variants(subject)
    chosen = choose(subject, found_variants)
    folders = frozenset(folder_of(facts.path) for variant in found_variants for facts in variant.files) or {"."}
    expected = None if chosen is None else memory.gguf_estimate(subject, chosen.files, _size(subject, chosen))
    found: list[Finding] = [
        *common_findings(subject, PACKAGES),
        *content_findings(subject, Loads(frozenset(folders), GGUF_FILES)),
        *weight_checks.corrupt_findings(subject),
        *_variant_findings(subject, found_variants, chosen),
        *pickle_checks.verdict_findings(subject, frozenset()),
        *code_checks.code_findings(subject),
        *memory_findings(subject, expected),
    ]
    model_type = None if chosen is None else chosen.metadata.get("architecture")
    return conclude(subject, found, expected, model_type=model_type, claims=False)


def variants(subject: Subject) -> tuple[Variant, ...]:
    """The GGUF models of the set, by path. Corrupt files and projectors are none."""
    groups: dict[str, list[WeightFacts]] = {}
    for facts in sorted(subject.evidence.weights, key=lambda facts: facts.path):
        # By its bytes: a file of that name alone is said to be another thing elsewhere.
        if facts.format != GGUF or facts.problem is not None or facts.metadata.get("architecture") == _PROJECTOR:
            continue
        groups.setdefault(_group(facts.path), []).append(facts)
    return tuple(Variant(name, tuple(files), _absent(subject, files[0].path)) for name, files in sorted(groups.items()))


def _group(path: str) -> str:
    part = shard_of(path.rpartition("/")[2])
    return path if part is None else member(folder_of(path), f"{part[0]}-of-{part[2]}{part[3]}")


def _absent(subject: Subject, path: str) -> tuple[str, ...]:
    """The parts of a split GGUF that the set lacks, by the numbers in their names."""
    part = shard_of(path.rpartition("/")[2])
    if part is None:
        return ()
    stem, _, count, end = part
    parts = [shard_of(name) for name in subject.in_folder(folder_of(path))]
    there = {other[1] for other in parts if other is not None and (other[0], other[2], other[3]) == (stem, count, end)}
    return tuple(gaps(stem, count, end, there))


def choose(subject: Subject, found: tuple[Variant, ...]) -> Variant | None:
    """The variant of the profile's quantization, whole ones first, else by path; `None` when there is none."""
    asked = subject.profile.quantization
    fitting = [variant for variant in found if asked is None or variant.quantization == asked.upper()]
    return min(fitting, key=lambda variant: (bool(variant.absent), variant.name), default=None)


def _variant_findings(subject: Subject, found: tuple[Variant, ...], chosen: Variant | None) -> Iterator[Finding]:
    if not found:
        others = sorted({facts.format for facts in subject.evidence.weights} - {GGUF, "unknown"})
        instead = f"; it has {' and '.join(others)}, which llama.cpp does not load" if others else ""
        message = f"the set has no readable GGUF model{instead}"
        yield finding(Code.NO_GGUF_ARTIFACT_VARIANT, "blocker", message, "weight headers")
        return
    if chosen is None:
        kinds = shown(sorted({variant.quantization or "of no named type" for variant in found}))
        message = f"the profile asks for {subject.profile.quantization}, the set has {kinds}"
        yield finding(Code.QUANTIZATION_NOT_EVIDENCED, "blocker", message, "GGUF headers")
        return
    source = f"header of {chosen.files[0].path}"
    if chosen.absent:
        message = f"{chosen.name} lacks parts: {shown(chosen.absent)}"
        yield finding(Code.GGUF_SPLIT_INCOMPLETE, "blocker", message, "manifest")
    rivals = [variant.name for variant in found if variant is not chosen]
    if rivals:
        message = f"{chosen.name} is taken; the profile's quantization chooses another: {shown(rivals)}"
        yield finding(Code.DUPLICATE_WEIGHTS, "warning", message, "weight headers")
    yield from weight_checks.format_findings(subject, "gguf")
    yield from _architecture_findings(subject, chosen, source)
    yield from _quantization_findings(subject, chosen, source)
    yield from _task_findings(subject, chosen, source)
    yield from _length_findings(subject, chosen, source)


def _architecture_findings(subject: Subject, chosen: Variant, source: str) -> Iterator[Finding]:
    named = chosen.metadata.get("architecture", "")[:_MAX_WORD_CHARS]
    if not named:
        message = f"{chosen.files[0].path} names no architecture"
        yield finding(Code.CONFIG_UNREADABLE, "blocker", message, f"{source}: general.architecture")
        return
    declared = subject.adapter.model_types if subject.adapter is not None else ()
    if declared and named not in declared:
        message = f"{subject.profile.adapter} does not declare the architecture {named}"
        yield finding(Code.MODEL_TYPE_NOT_DECLARED, "blocker", message, f"{source}: general.architecture")
    elif not declared and named not in ARCHITECTURES:
        # The node's llama.cpp may be newer than the list that is known here.
        message = f"the architecture {named} is on no list of llama.cpp that is known here"
        yield finding(Code.MODEL_TYPE_NOT_DECLARED, "warning", message, f"{source}: general.architecture")
    if not chosen.metadata.get("tokenizer"):
        message = f"the header of {chosen.files[0].path} names no tokenizer"
        yield finding(Code.TOKENIZER_MISSING, "warning", message, f"{source}: tokenizer.ggml.model")


def _quantization_findings(subject: Subject, chosen: Variant, source: str) -> Iterator[Finding]:
    has, asked = chosen.quantization, subject.profile.quantization
    if has in _PLAIN and asked is None:
        return
    if asked is None:
        # Nearly every GGUF is quantized, and llama.cpp reads it as it is: said, and no reason to refuse.
        message = f"{chosen.name} is {has}, the profile names no quantization"
        yield finding(Code.QUANTIZED_WEIGHTS, "warning", message, f"{source}: general.file_type")
    else:
        yield from quantization_checks.declared_findings(subject, Evidenced(has, f"{source}: general.file_type"))


def _task_findings(subject: Subject, chosen: Variant, source: str) -> Iterator[Finding]:
    task, named = subject.profile.task, chosen.metadata.get("architecture", "")
    pooling = chosen.metadata.get("pooling_type", "").lower()
    if task == "text_generation" and named in ENCODERS:
        message = f"{named} encodes text and writes none"
        yield finding(Code.TASK_MISMATCH, "blocker", message, f"{source}: general.architecture")
    elif task == "embedding" and not pooling:
        message = "the header names no pooling: how token vectors become one vector must be told to llama.cpp"
        yield finding(Code.POOLING_MISSING, "warning", message, f"{source}: {named}.pooling_type")
    elif task == "embedding" and pooling in (_NO_POOLING | _RANK_POOLING):
        message = f"the header's pooling type {pooling} gives no vector for a text"
        yield finding(Code.POOLING_MISMATCH, "blocker", message, f"{source}: {named}.pooling_type")
    elif task == "reranking" and pooling not in _RANK_POOLING:
        severity: Severity = "blocker" if pooling else "warning"
        message = "the header's pooling is none that ranks, so nothing shows that the model has the head that scores"
        yield finding(Code.HEAD_MISSING, severity, message, f"{source}: {named}.pooling_type")


def _length_findings(subject: Subject, chosen: Variant, source: str) -> Iterator[Finding]:
    trained = chosen.metadata.get("context_length", "")
    wanted = subject.profile.max_sequence_length
    if trained.isascii() and trained.isdecimal() and 0 < int(trained[:12]) < wanted:
        message = f"the profile wants {wanted} tokens, the model was made for {trained[:12]}"
        yield finding(Code.SEQUENCE_TOO_LONG, "blocker", message, f"{source}: context_length")


def _size(subject: Subject, chosen: Variant) -> int:
    paths = {facts.path for facts in chosen.files}
    return sum(file.size_bytes for file in subject.manifest.files if file.path in paths)
