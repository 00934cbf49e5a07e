"""Which weight files of a folder the runtime would load, and what lies beside them (spec A9).

The order is the runtime's own: one file by the plain name, then an index, then pickle. A folder often holds more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from adapters.inspect.subject import Subject, member
from bus.messages.artifacts import WeightFacts

INDEX_ENDING: Final = ".index.json"
SAFETENSORS: Final = ".safetensors"
# Pickles that training leaves behind; no runtime loads a model from them.
_LEFT_BY_TRAINING: Final = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state.*|trainer_state)\.\w+\Z")
_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<count>\d{1,6})(?P<end>\.\w+)\Z")
_MAX_SHARDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Index:
    """A shard index: its path, and the names that it gives, relative to its folder."""

    path: str
    files: tuple[str, ...]
    readable: bool
    mismatch: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What would be loaded from one folder.

    Attributes:
        loaded: the headers of the Safetensors that would be loaded; empty when there are none.
        by: the file or rule that chooses them, in words.
        indexes: the Safetensors indexes of the folder.
        duplicates: weights of the same model beside them that would not be loaded: a whole set by its index, or a file.
        strays: Safetensors beside them that nothing names and that would not be loaded.
        pickles: the members that are pickled weights.
        numbered: shards whose own names count more files than there are: the names that are absent.
    """

    loaded: tuple[WeightFacts, ...]
    by: str
    indexes: tuple[Index, ...]
    duplicates: tuple[str, ...]
    strays: tuple[str, ...]
    pickles: tuple[str, ...]
    numbered: tuple[str, ...]


def choose(subject: Subject, folder: str, stem: str = "model", *, any_name: bool = False) -> Choice:
    """What the runtime would load from `folder`; worked out once for a subject.

    Args:
        subject: the set.
        folder: one folder of it.
        stem: what the weights are called: `model`, or `diffusion_pytorch_model`.
        any_name: the runtime takes all Safetensors of the folder, whatever their names.
    """
    key = (choose, folder, stem, any_name)
    if key not in subject.worked_out:
        subject.worked_out[key] = _chosen(subject, folder, stem, any_name=any_name)
    choice: Choice = subject.worked_out[key]
    return choice


def _chosen(subject: Subject, folder: str, stem: str, *, any_name: bool) -> Choice:
    facts = {found.path.rpartition("/")[2]: found for found in subject.weights.get(folder, ())}
    # A file of no known weight format under such a name is still what the runtime would open.
    tensors = {name: found for name, found in facts.items() if name.endswith(SAFETENSORS)}
    indexes = _indexes(subject, folder)
    wanted, by, duplicates = _wanted(tensors, indexes, stem, any_name=any_name)
    named = {name for index in indexes for name in index.files} | wanted
    strays = [name for name in tensors if name not in named and name not in duplicates]
    # Of the same model as a file that is loaded, whatever it is called (spec A9).
    loaded = {tensors[name].names_sha256 for name in wanted if name in tensors} - {None}
    twins = [name for name in strays if tensors[name].names_sha256 in loaded]
    return Choice(
        loaded=tuple(tensors[name] for name in sorted(wanted) if name in tensors),
        by=by,
        indexes=indexes,
        duplicates=(*duplicates, *sorted(twins)),
        strays=tuple(sorted(set(strays) - set(twins))),
        pickles=tuple(
            found.path
            for name, found in facts.items()
            if found.format == "pickle" and not name.endswith(SAFETENSORS) and not _LEFT_BY_TRAINING.match(name)
        ),
        numbered=_absent_numbers(tensors),
    )


def _wanted(
    tensors: dict[str, WeightFacts], indexes: tuple[Index, ...], stem: str, *, any_name: bool
) -> tuple[set[str], str, tuple[str, ...]]:
    """The names that would be loaded, what chooses them, and one name for each other whole set of weights."""
    single = f"{stem}{SAFETENSORS}"
    whole = [index for index in indexes if index.files and all(name in tensors for name in index.files)]
    own = next((index for index in indexes if index.path.rpartition("/")[2] == f"{single}{INDEX_ENDING}"), None)
    variants = sorted(name for name in tensors if re.fullmatch(rf"{re.escape(stem)}\.[\w-]+\.safetensors", name))
    consolidated = sorted(name for name in tensors if name.startswith("consolidated"))
    if single in tensors:
        others = [index.path for index in whole if single not in index.files]
        return {single}, single, (*others, *variants, *consolidated)
    if own is not None:
        others = [index.path for index in whole if index is not own]
        return set(own.files), own.path, (*others, *variants, *consolidated)
    if any_name and tensors:
        return set(tensors), "every Safetensors file of the folder", ()
    return set(), "", ()


def _indexes(subject: Subject, folder: str) -> tuple[Index, ...]:
    names = [name for name in subject.in_folder(folder) if name.endswith(f"{SAFETENSORS}{INDEX_ENDING}")]
    return tuple(read_index(subject, member(folder, name)) for name in sorted(names))


def read_index(subject: Subject, path: str) -> Index:
    """A shard index as the scan reduced it."""
    document = subject.document(path) or {}
    files = document.get("files")
    names = tuple(str(file) for file in files[:_MAX_SHARDS]) if isinstance(files, list) else ()
    mismatch = document.get("mismatch")
    return Index(path, names, bool(names) and not document.get("problem"), str(mismatch) if mismatch else None)


def pickle_index_gaps(subject: Subject, folder: str) -> list[str]:
    """Names that an index of pickled shards in `folder` gives and the folder lacks."""
    names = subject.in_folder(folder)
    gaps: list[str] = []
    for name in sorted(names):
        if name.endswith(f".bin{INDEX_ENDING}"):
            files = (subject.document(member(folder, name)) or {}).get("files")
            listed = files[:_MAX_SHARDS] if isinstance(files, list) else []
            gaps += [str(file) for file in listed if str(file) not in names]
    return gaps


def _absent_numbers(names: dict[str, WeightFacts]) -> tuple[str, ...]:
    """Files numbered `…-00001-of-00003`: the names of those that are absent, for each stem that has any."""
    stems: dict[tuple[str, str, str], set[int]] = {}
    for name in names:
        match = _SHARD.match(name)
        if match is not None:
            stems.setdefault((match["stem"], match["count"], match["end"]), set()).add(int(match["number"]))
    return tuple(sorted(name for key, there in stems.items() for name in gaps(*key, there)))


def gaps(stem: str, count: str, end: str, there: set[int]) -> list[str]:
    """The names that are absent from a numbered set of files, written as its own are."""
    total = min(int(count), _MAX_SHARDS)
    return [f"{stem}-{number:0{len(count)}}-of-{count}{end}" for number in range(1, total + 1) if number not in there]


def shard_of(name: str) -> tuple[str, int, str, str] | None:
    """The stem, number, count and ending of a file numbered `…-00001-of-00003`; `None` for another name."""
    match = _SHARD.match(name)
    return None if match is None else (match["stem"], int(match["number"]), match["count"], match["end"])
