"""Findings about what files are by their bytes: disguised, empty, pointers, archives, programs, code (spec A4, A9)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding, several
from adapters.inspect.subject import Subject, folder_of, shown
from bus.messages.artifacts import FileFormat
from bus.messages.gates import Finding

_F = FileFormat
# Names that a runtime of the Transformers kind opens in a folder that it loads.
TRANSFORMERS_FILES: Final = (".safetensors", ".json", ".txt", ".model", ".jinja")
GGUF_FILES: Final = (".gguf",)
_PICKLE_NAMES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
_WEIGHT_NAMES: Final = (".safetensors", ".gguf", *_PICKLE_NAMES, ".onnx", ".h5", ".msgpack", ".tflite", ".npz")
_MUST_BE_WEIGHTS: Final = (".safetensors", ".gguf")
# Empty, they break what reads them; an empty file of another name is nobody's fault.
_NEVER_EMPTY: Final = (*_WEIGHT_NAMES, ".json", ".model", "vocab.txt", "merges.txt")
# What the bytes may be for a name. Text and bytes of no known kind contradict no name: a header's own check says more.
_EXPECTED: Final[dict[str, frozenset[str]]] = {
    ".safetensors": frozenset({_F.SAFETENSORS}),
    ".gguf": frozenset({_F.GGUF}),
    ".json": frozenset({_F.JSON}),
    ".onnx": frozenset({_F.ONNX}),
    ".h5": frozenset({_F.HDF5}),
    # A ZIP is what PyTorch saves since 1.6, a TAR what it saved at first.
    **dict.fromkeys(_PICKLE_NAMES, frozenset({_F.PICKLE, _F.TORCH_ZIP, _F.ZIP, _F.TAR, _F.CTRANSLATE2, _F.NUMPY})),
}
_SAYS_NOTHING: Final = frozenset({_F.TEXT, _F.BINARY})
_OWN_FINDING: Final = frozenset({_F.EMPTY, _F.LFS_POINTER})
_EXPLAINED: Final = _OWN_FINDING | _SAYS_NOTHING
_HIDDEN_PICKLE: Final = frozenset({_F.PICKLE, _F.TORCH_ZIP})
_ARCHIVES: Final = (_F.ZIP, _F.TAR, _F.GZIP, _F.BZIP2, _F.XZ, _F.ZSTD, _F.SEVEN_ZIP, _F.RAR)
_ARCHIVE_BY_DESIGN: Final = (*_PICKLE_NAMES, ".npz")
# Names that downloads have until they are whole.
_PARTIAL: Final = frozenset({".aria2", ".crdownload", ".download", ".incomplete", ".partial"})
_PART: Final = re.compile(r"\.part\d{0,3}")
_PROGRAMS: Final = (_F.ELF, _F.PE, _F.MACH_O, _F.WASM, _F.SCRIPT)


@dataclass(frozen=True, slots=True)
class Loads:
    """What the runtime would open: files of these name endings in these folders."""

    folders: frozenset[str]
    endings: tuple[str, ...]

    def has(self, path: str) -> bool:
        """Would the runtime open this member?"""
        return path.endswith(self.endings) and folder_of(path) in self.folders


def content_findings(subject: Subject, loads: Loads) -> Iterator[Finding]:
    """What a file really is: a blocker where the runtime would open it, else a warning."""
    yield from _empty_findings(subject, loads)
    yield from _pointer_findings(subject, loads)
    yield from _mismatch_findings(subject, loads)
    yield from _stray_findings(subject)
    endings = [ending for ending in subject.by_ending if ending in _PARTIAL or _PART.fullmatch(ending)]
    partial = subject.ending_with(*endings)
    if partial:
        message = f"a download that was not finished: {shown(partial)}"
        yield finding(Code.PARTIAL_DOWNLOAD, "warning", message, "manifest")


def explained(subject: Subject, path: str) -> bool:
    """Does a finding of this module already say what is wrong with a weight file, better than its header can?"""
    return subject.format_of(path) in _OWN_FINDING or _contradicts(path, subject.format_of(path))


def _blocks(loads: Loads, path: str) -> bool:
    """A weight file that is none is a corrupt member wherever it lies (A4); another file only where it is opened."""
    return loads.has(path) or path.lower().endswith(_MUST_BE_WEIGHTS)


def _split(loads: Loads, paths: list[str]) -> Iterator[tuple[Severity, list[str]]]:
    """The paths that block, and the others; neither group when it is empty."""
    opened = [path for path in paths if _blocks(loads, path)]
    others = [path for path in paths if not _blocks(loads, path)]
    if opened:
        yield "blocker", opened
    if others:
        yield "warning", others


def _empty_findings(subject: Subject, loads: Loads) -> Iterator[Finding]:
    empty = [path for path in subject.of_format(_F.EMPTY) if path.endswith(_NEVER_EMPTY)]
    for severity, paths in _split(loads, empty):
        yield finding(Code.EMPTY_FILE, severity, f"no bytes at all: {shown(paths)}", "manifest: sizes")


def _pointer_findings(subject: Subject, loads: Loads) -> Iterator[Finding]:
    for severity, paths in _split(loads, subject.of_format(_F.LFS_POINTER)):
        message = f"a Git LFS pointer in the place of the file: {shown(paths)}"
        yield finding(Code.LFS_POINTER, severity, message, "the files' first bytes")


def _mismatch_findings(subject: Subject, loads: Loads) -> Iterator[Finding]:
    said: dict[Severity, list[tuple[str, str]]] = {"blocker": [], "warning": []}
    for format_, paths in subject.by_format.items():
        if format_ in _EXPLAINED:
            continue
        words = _words(format_)
        fitting = tuple(ending for ending, formats in _EXPECTED.items() if format_ in formats)
        # Nearly all bear a name that fits, and to see that is much less work.
        for path in [path for path in paths if not path.endswith(fitting)]:
            if not _contradicts(path, format_):
                continue
            # A pickle under a safe name is there to get past somebody: it blocks wherever it lies.
            hidden = format_ in _HIDDEN_PICKLE and path.lower().endswith(".json")
            severity: Severity = "blocker" if hidden or _blocks(loads, path) else "warning"
            said[severity].append((f"{path} is {words}", f"first bytes of {path}"))
    for severity, found in said.items():
        yield from several(Code.FORMAT_MISMATCH, severity, found)


def _contradicts(path: str, format_: str | None) -> bool:
    if format_ is None or format_ in _EXPLAINED:
        return False
    name = path.lower()
    ending = name[name.rfind(".") :] if "." in name else ""
    expected = _EXPECTED.get(ending)
    if expected is not None:
        return format_ not in expected
    return format_ == _F.HTML and name.endswith((".txt", ".model", ".jinja"))


def _words(format_: str) -> str:
    named = {_F.HTML: "a web page", _F.PICKLE: "a pickle", _F.TORCH_ZIP: "a pickle in a ZIP", _F.JSON: "JSON"}
    return named.get(FileFormat(format_), format_) if format_ in set(FileFormat) else "of an unknown kind"


def _stray_findings(subject: Subject) -> Iterator[Finding]:
    """What nothing opens, runs or unpacks, and what an operator should still know of."""
    archives = [path for path in subject.of_format(*_ARCHIVES) if not path.lower().endswith(_ARCHIVE_BY_DESIGN)]
    if archives:
        yield finding(Code.ARCHIVE_IN_SET, "warning", f"never unpacked: {shown(archives)}", "the files' first bytes")
    programs = [path for path in subject.of_format(*_PROGRAMS) if not path.endswith(".py")]
    if programs:
        yield finding(Code.EXECUTABLE_IN_SET, "warning", f"never run: {shown(programs)}", "the files' first bytes")
