"""What a weight file's header says, and whether the file is what its name promises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, Final, Literal

from adapters.formats import gguf, safetensors
from adapters.formats.documents import DocumentProblem
from bus.messages.artifacts import FileFormat, WeightFacts

# Names that somebody hands to an unpickler, whatever is in the file.
PICKLE_SUFFIXES: Final = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill"})
PICKLES: Final = frozenset({FileFormat.PICKLE, FileFormat.TORCH_ZIP})
_Weights = Literal["safetensors", "gguf"]
_NAMED: Final[dict[str, _Weights]] = {".safetensors": "safetensors", ".gguf": "gguf"}
_WORDS: Final = {
    FileFormat.EMPTY: "the file is empty",
    FileFormat.LFS_POINTER: "it is a Git LFS pointer: the content was never fetched",
    FileFormat.HTML: "it is an HTML page, such as a server sends in place of a file",
    FileFormat.JSON: "it is JSON",
    FileFormat.GGUF: "it is GGUF",
    FileFormat.SAFETENSORS: "it is Safetensors",
    FileFormat.CTRANSLATE2: "it is a model of CTranslate2",
}
_NO_PICKLE: Final = "neither a pickle nor another known weight format"


def weight_facts(
    path: str, file: BinaryIO, size_bytes: int, found: FileFormat
) -> tuple[WeightFacts | None, tuple[str, ...]]:
    """What the header of `file`, at its beginning, says, and its tensors' names; `None` for a file of no weights.

    Args:
        path: the member's name in the set.
        file: seekable; nothing behind its header is read.
        size_bytes: how long it is.
        found: what it is by its bytes; the name counts only when that is no format of weights.

    Raises:
        OSError: when the file cannot be read.
    """
    suffix = suffix_of(path)
    if found is FileFormat.SAFETENSORS or found is FileFormat.GGUF:
        return _of_header(path, file, size_bytes, found)
    if found in PICKLES or (found is FileFormat.ZIP and suffix in PICKLE_SUFFIXES):
        return WeightFacts(path=path, format="pickle"), ()
    if suffix in _NAMED:
        format_ = _NAMED[suffix]
        problem = f"the file does not begin with a header of {format_}"
        return WeightFacts(path=path, format=format_, problem=problem_of(found) or problem), ()
    if suffix in PICKLE_SUFFIXES:
        return WeightFacts(path=path, format="unknown", problem=problem_of(found) or _NO_PICKLE), ()
    return None, ()


def suffix_of(path: str) -> str:
    """The last suffix of a member's name in small letters, with its dot; also that of a name that is nothing else."""
    _, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return f"{dot}{suffix}".lower() if dot else ""


def problem_of(found: FileFormat) -> str | None:
    """In words, what a file is that should be another; `None` when there is nothing to say beyond that."""
    return _WORDS.get(found)


def _of_header(
    path: str, file: BinaryIO, size_bytes: int, found: Literal[FileFormat.SAFETENSORS, FileFormat.GGUF]
) -> tuple[WeightFacts, tuple[str, ...]]:
    names: Iterable[str]
    format_: _Weights = "safetensors" if found is FileFormat.SAFETENSORS else "gguf"
    try:
        if found is FileFormat.SAFETENSORS:
            header = safetensors.read_header(file, size_bytes)
            facts, names = safetensors.weight_facts(path, header), (tensor.name for tensor in header.tensors)
        else:
            head = gguf.read_header(file, size_bytes)
            facts, names = gguf.weight_facts(path, head), (tensor.name for tensor in head.tensors)
    except DocumentProblem as problem:
        return WeightFacts(path=path, format=format_, problem=str(problem)), ()
    return facts, tuple(names)
