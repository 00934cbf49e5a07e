"""Findings about weights: none is corrupt, each folder has what is loaded, whole by its index (spec A3, A9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from adapters.inspect import pickle_checks
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding, several
from adapters.inspect.content_checks import explained
from adapters.inspect.subject import ROOT, Subject, folder_of, member, shown
from adapters.inspect.weights import INDEX_ENDING, SAFETENSORS, Choice, Index, choose, pickle_index_gaps, read_index
from bus.messages.artifacts import FileFormat, WeightFacts
from bus.messages.gates import Finding

# Weights of other runtimes, named in a finding so that an operator sees what the folder has in their place.
_FOREIGN: Final = (FileFormat.GGUF, FileFormat.ONNX, FileFormat.HDF5, FileFormat.TFLITE, FileFormat.CTRANSLATE2)


def loaded_weights(subject: Subject, folders: Sequence[str], *, any_name: bool = False) -> list[WeightFacts]:
    """The weights that would be loaded; exports for other runtimes, duplicates and strays are not among them."""
    return [facts for folder in folders for facts in good(choose(subject, folder, any_name=any_name))]


def good(choice: Choice) -> list[WeightFacts]:
    """The loaded files whose headers are sound."""
    return [facts for facts in choice.loaded if _is_good(facts)]


def _is_good(facts: WeightFacts) -> bool:
    return facts.format == "safetensors" and facts.problem is None and facts.tensors > 0


def weight_findings(subject: Subject, folders: tuple[str, ...], *, any_name: bool = False) -> Iterator[Finding]:
    """No weight file is corrupt; each of `folders` holds Safetensors, complete by their index; no unapproved pickle."""
    yield from corrupt_findings(subject)
    choices = [(folder, choose(subject, folder, any_name=any_name)) for folder in folders]
    for folder, choice in choices:
        yield from _folder_findings(subject, folder, choice)
    yield from format_findings(subject, "safetensors")
    yield from index_findings(subject)
    unpickled = {path for _, choice in choices if not good(choice) for path in choice.pickles}
    loaded = frozenset(unpickled) if pickle_checks.loads_pickle(subject) else frozenset()
    yield from pickle_checks.verdict_findings(subject, loaded)


def corrupt_findings(subject: Subject) -> Iterator[Finding]:
    """Headers that contradict themselves or their file, in any member; what a file's bytes say is said elsewhere."""
    for facts in subject.evidence.weights:
        if facts.problem is not None and facts.format != "unknown" and not explained(subject, facts.path):
            yield finding(Code.WEIGHTS_CORRUPT, "blocker", f"{facts.path}: {facts.problem}", f"header of {facts.path}")


def _folder_findings(subject: Subject, folder: str, choice: Choice) -> Iterator[Finding]:
    has = bool(good(choice))
    yield from pickle_checks.folder_findings(subject, choice, good=has)
    absent = pickle_index_gaps(subject, folder)
    if absent and not has and choice.pickles:
        message = f"the index of the pickled shards names files that the set lacks: {shown(absent)}"
        yield finding(Code.SHARD_MISSING, "blocker", message, "shard index")
    elif absent and has:
        message = f"an index of pickled shards was left behind; not loaded, and absent: {shown(absent)}"
        yield finding(Code.SHARD_MISSING, "note", message, "shard index")
    yield from _choice_findings(subject, folder, choice, has=has)


def _choice_findings(subject: Subject, folder: str, choice: Choice, *, has: bool) -> Iterator[Finding]:
    where = "the set's own folder" if folder == ROOT else folder
    strays = [member(folder, name) for name in choice.strays]
    if choice.numbered and not choice.indexes:
        message = f"the shards' own numbers name files that the set lacks: {shown(choice.numbered)}"
        yield finding(Code.SHARD_MISSING, "blocker", message, "manifest")
    if strays:
        severity: Severity = "warning" if has else "blocker"
        reason = f"{choice.by} is loaded" if has else "the runtime looks for model.safetensors, or an index that fits"
        message = f"{reason}; not loaded: {shown(strays)}"
        yield finding(Code.SHARD_UNINDEXED, severity, message, "manifest")
    elif not has and not choice.pickles:
        message = f"no readable Safetensors weights in {where}{_instead(subject, folder)}"
        yield finding(Code.NO_WEIGHTS, "blocker", message, "manifest")
    if choice.duplicates:
        message = f"{choice.by} is loaded; the same weights beside it are not: {shown(choice.duplicates)}"
        yield finding(Code.DUPLICATE_WEIGHTS, "warning", message, "weight headers")


def _instead(subject: Subject, folder: str) -> str:
    found = [path for path in subject.of_format(*_FOREIGN) if folder_of(path) == folder]
    if not found:
        return ""
    kinds = sorted({subject.evidence.formats[path] for path in found})
    return f"; what is there is {' and '.join(kinds)}: {shown(found, 2)}"


def format_findings(subject: Subject, loads: str) -> Iterator[Finding]:
    """The adapter declares the format that would be loaded (A8); a stray file of a declared one says nothing about it.

    Args:
        subject: the set.
        loads: the format that this runtime takes, where the set has it; else all that the set has are looked at.
    """
    if subject.adapter is None:
        return
    declared = subject.adapter.formats
    formats = {facts.format for facts in subject.evidence.weights if facts.problem is None} - {"pickle", "unknown"}
    if loads in formats:
        formats = {loads}
    foreign = sorted(formats - set(declared))
    if formats and foreign == sorted(formats):
        message = f"{subject.profile.adapter} does not declare {', '.join(foreign)}"
        yield finding(Code.FORMAT_NOT_DECLARED, "blocker", message, "weight headers")


def index_findings(subject: Subject) -> Iterator[Finding]:
    """Every Safetensors index of the set, in any folder: readable, all its files there, and in accord with them."""
    paths = [path for path in subject.ending_with(".json") if path.endswith(f"{SAFETENSORS}{INDEX_ENDING}")]
    unreadable = [path for path in paths if not read_index(subject, path).readable]
    said = [(f"{path} maps no tensors to files", path) for path in unreadable]
    yield from several(Code.SHARD_INDEX_UNREADABLE, "blocker", said)
    for path in sorted(set(paths) - set(unreadable)):
        folder = folder_of(path)
        yield from _index_findings(subject, folder, read_index(subject, path))


def _index_findings(subject: Subject, folder: str, index: Index) -> Iterator[Finding]:
    absent = [name for name in index.files if member(folder, name) not in subject.paths]
    if absent:
        message = f"{index.path} names files that the set lacks: {shown(absent)}"
        strays = choose(subject, folder).strays
        if strays:
            # Renamed shards: the weights may all be there, so "missing" alone would mislead.
            message = f"{index.path} does not match the files: it names {shown(absent, 2)}, there is {shown(strays, 2)}"
        yield finding(Code.SHARD_MISSING, "blocker", message, index.path)
    if index.mismatch is not None:
        yield finding(Code.SHARD_MISMATCH, "blocker", f"{index.path}: {index.mismatch}", index.path)
