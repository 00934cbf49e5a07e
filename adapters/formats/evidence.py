"""What a scan keeps of a model folder besides the digests: formats, small documents, weight headers, pickles.

One function per member, so that the scanner decides how files are opened; `EvidenceCollector` bounds the sum, because
it travels to the controller and is read at every assessment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, BinaryIO, Final

from msgspec.structs import replace

from adapters.formats.cleaning import MAX_CHARS, clean_pickle, clean_weights
from adapters.formats.documents import MAX_DOCUMENT_BYTES, MAX_KEPT_ITEMS, DocumentProblem, is_cut, parse_json, pruned
from adapters.formats.pickles import hides_pickle, may_hold_pickles, pickle_facts
from adapters.formats.shards import MAX_SHARDS, ShardBook, is_index, reduced_index, weight_map
from adapters.formats.sniff import sniff_file
from adapters.formats.tokenizers import MAX_TOKENIZER_BYTES, reduced_tokenizer
from adapters.formats.weights import PICKLE_SUFFIXES, PICKLES, problem_of, suffix_of, weight_facts
from adapters.loader_options import TRANSFORMER_CONFIGS
from bus.codec import encode
from bus.messages.artifacts import FileFormat, Opinion, PickleFacts, SetEvidence, WeightFacts
from bus.text import clean_line

SCANNER: Final = "scan.2"
MAX_INDEX_BYTES: Final = 32 * 1024 * 1024
MAX_EVIDENCE_BYTES: Final = 8 * 1024 * 1024
MAX_WEIGHTS: Final = 1_000
MAX_NOTES: Final = 100
MAX_PICKLES: Final = 20_000
# Its parts: documents and weights together, the formats of 60,000 members, pickles.
MAX_KEPT_BYTES: Final = 384 * 1024
MAX_FORMATS_BYTES: Final = 6 * 1024 * 1024
MAX_PICKLES_BYTES: Final = 512 * 1024
# Left to those that are dangerous, after the harmless ones have filled their part.
MAX_CODE_BYTES: Final = 512 * 1024
# What a comparison may add to an index.
_MISMATCH_BYTES: Final = 512
# Documents that inspectors read.
DOCUMENTS: Final = frozenset(
    {
        "adapter_config.json",
        "config.json",
        "config_sentence_transformers.json",
        "generation_config.json",
        "hf_quant_config.json",
        "model_index.json",
        "modules.json",
        "params.json",
        "preprocessor_config.json",
        "processor_config.json",
        "quant_config.json",
        "quantize_config.json",
        "scheduler_config.json",
        *TRANSFORMER_CONFIGS,
        "special_tokens_map.json",
        "tokenizer_config.json",
        "video_preprocessor_config.json",
    }
)
TOKENIZER: Final = "tokenizer.json"
# Words of `SetEvidence.problems`.
UNREADABLE: Final = "unreadable"
CUT: Final = "cut"
TOO_LARGE: Final = "too_large"
LEFT_OUT: Final = "left_out"
PICKLE_LEFT_OUT: Final = "pickle_left_out"
PROBLEMS: Final = frozenset({UNREADABLE, CUT, TOO_LARGE, LEFT_OUT, PICKLE_LEFT_OUT})
# Looked into for pickles whatever they are called. A zip without one, or an array of numbers, gives none.
_MAY_HOLD_PICKLES: Final = PICKLES | {FileFormat.ZIP, FileFormat.NUMPY, FileFormat.TAR}
_TEXTS: Final = frozenset(
    {
        FileFormat.HTML,
        FileFormat.JSON,
        FileFormat.LFS_POINTER,
        FileFormat.PYTHON,
        FileFormat.SCRIPT,
        FileFormat.TEXT,
    }
)
# Loaders of these names unpack what is compressed, so that what cannot be read is a finding too.
_ALWAYS_PICKLE: Final = frozenset({".pkl", ".pickle", ".joblib", ".dill"})

_FORMATS: Final = frozenset(found.value for found in FileFormat)

Opinions = Callable[[BinaryIO], tuple[Opinion, ...]]


def no_opinions(_file: BinaryIO) -> tuple[Opinion, ...]:
    """What is asked about pickles when no other scanner is there."""
    return ()


class EvidenceCollector:
    """Fed with every member of a set in the manifest's order; gives the set's evidence."""

    def __init__(self, opinions: Opinions = no_opinions) -> None:
        """`opinions` is asked about each member that is a pickle or holds one and that was read here to its end.

        It gets the file at its beginning.
        """
        self._opinions = opinions
        self._documents: dict[str, Any] = {}
        self._weights: list[WeightFacts] = []
        self._formats: dict[str, str] = {}
        self._pickles: list[PickleFacts] = []
        self._notes: list[str] = []
        self._problems: dict[str, str] = {}
        self._shards = ShardBook()
        self._kept = _Budget(MAX_KEPT_BYTES)
        self._formats_kept = _Budget(MAX_FORMATS_BYTES)
        self._pickles_kept = _Budget(MAX_PICKLES_BYTES)
        self._code_kept = _Budget(MAX_CODE_BYTES)

    def add(self, path: str, file: BinaryIO, size_bytes: int) -> None:
        """Look at one member: `path` relative to the set, `file` seekable at its beginning. Weights are never read.

        Raises:
            OSError: when the file cannot be read.
        """
        found, head = sniff_file(file, size_bytes)
        if found not in _MAY_HOLD_PICKLES and self._hides_pickle(path, file, size_bytes, found):
            found = FileFormat.PICKLE
        if self._formats_kept.takes(len(path.encode("utf-8", "replace")) + len(found) + 6):
            self._formats[path] = found.value
        else:
            self._problem(path, LEFT_OUT, "the formats of the last members were left out, the evidence is full")
        name = path.rpartition("/")[2]
        if is_index(name) or name in DOCUMENTS or name == TOKENIZER:
            self._add_document(path, file, size_bytes, found)
        else:
            self._add_weights(path, file, size_bytes, found)
        self._add_pickles(path, file, size_bytes, found, holds=may_hold_pickles(head))

    def _hides_pickle(self, path: str, file: BinaryIO, size_bytes: int, found: FileFormat) -> bool:
        """Is it what an unpickler follows to an import, behind more than the bytes that its format was told by?"""
        hides = hides_pickle(file, size_bytes, text=found in _TEXTS and suffix_of(path) not in PICKLE_SUFFIXES)
        file.seek(0)
        return hides

    def result(self) -> SetEvidence:
        """The evidence of all members so far."""
        documents = dict(self._documents)
        for path, mismatch in self._shards.mismatches().items():
            documents[path] = {**documents[path], "mismatch": mismatch}
        return SetEvidence(
            documents=dict(sorted(documents.items())),
            weights=tuple(sorted(self._weights, key=lambda facts: facts.path)),
            notes=tuple(self._notes),
            formats=dict(sorted(self._formats.items())),
            pickles=tuple(sorted(self._pickles, key=lambda facts: (facts.path, facts.member))),
            scanner=SCANNER,
            problems=dict(sorted(self._problems.items())),
        )

    def _add_document(self, path: str, file: BinaryIO, size_bytes: int, found: FileFormat) -> None:
        name = path.rpartition("/")[2]
        max_bytes = MAX_INDEX_BYTES if is_index(name) else MAX_DOCUMENT_BYTES
        if name == TOKENIZER:
            max_bytes = MAX_TOKENIZER_BYTES
        if size_bytes > max_bytes:
            self._problem(path, TOO_LARGE, f"{path}: not read, it is larger than {max_bytes} bytes")
            return
        data = file.read(max_bytes + 1)
        if name == TOKENIZER:
            kept = {"problem": problem_of(found)} if found is not FileFormat.JSON and problem_of(found) else None
            self._keep_document(path, kept or reduced_tokenizer(data))
            return
        try:
            document = parse_json(data, max_bytes=max_bytes)
        except DocumentProblem as problem:
            says = None if found is FileFormat.JSON else problem_of(found)
            self._problem(path, UNREADABLE, f"{path}: not read, {says or problem}")
            return
        if not is_index(name):
            if is_cut(document):
                self._problem(
                    path, CUT, f"{path}: not all of it was kept, an object in it has too many or unclean keys"
                )
            self._keep_document(path, pruned(document))
        elif self._keep_document(path, reduced_index(document), _MISMATCH_BYTES):
            mapped = weight_map(document)
            if mapped is not None and not self._shards.add_index(path, mapped):
                self._note(f"{path}: not compared with its files, the set names too many tensors")

    def _keep_document(self, path: str, kept: Any, reserve_bytes: int = 0) -> bool:
        fits = self._kept.takes(len(encode({path: kept})) + reserve_bytes)
        if fits:
            self._documents[path] = kept
        else:
            self._problem(path, LEFT_OUT, f"{path}: left out, the evidence is full")
        return fits

    def _add_weights(self, path: str, file: BinaryIO, size_bytes: int, found: FileFormat) -> None:
        facts, names = weight_facts(path, file, size_bytes, found)
        if facts is None:
            return
        if len(self._weights) >= MAX_WEIGHTS or not self._kept.takes(len(encode(facts))):
            self._problem(path, LEFT_OUT, f"{path}: left out, the evidence is full")
            return
        self._weights.append(facts)
        if facts.format == "safetensors" and facts.problem is None and not self._shards.add_shard(path, names):
            self._note(f"{path}: not compared with an index, the set holds too many tensors")

    def _add_pickles(self, path: str, file: BinaryIO, size_bytes: int, found: FileFormat, *, holds: bool) -> None:
        suffix = suffix_of(path)
        asked = found in _MAY_HOLD_PICKLES or holds
        if not asked and (suffix not in PICKLE_SUFFIXES or found is FileFormat.EMPTY):
            return
        file.seek(0)
        facts = pickle_facts(path, file, size_bytes)
        if not asked and suffix not in _ALWAYS_PICKLE:
            # It hides no pickle: no unpickler gets to an import of anything that there can be. It is another format.
            facts = tuple(one for one in facts if one.verdict not in {"unreadable", "code"})
        if not facts:
            return
        opinions: tuple[Opinion, ...] = ()
        if all(one.verdict != "unreadable" for one in facts):
            # Others unpack without a bound what was given up here, and it is refused whatever they say.
            file.seek(0)
            opinions = self._opinions(file)
        for number, one in enumerate(facts):
            self._keep_pickle(clean_pickle(replace(one, opinions=opinions) if number == 0 else one))

    def _keep_pickle(self, facts: PickleFacts) -> None:
        size = len(encode(facts))
        fits = self._pickles_kept.takes(size) or (facts.verdict == "code" and self._code_kept.takes(size))
        if fits and len(self._pickles) < MAX_PICKLES:
            self._pickles.append(facts)
        else:
            what = f"{facts.path}: what its pickle does was left out, the evidence is full"
            self._problem(facts.path, PICKLE_LEFT_OUT, what)

    def _problem(self, path: str, problem: str, text: str) -> None:
        """On record for each member, whatever becomes of the note: rules rest on it."""
        self._problems[path] = problem
        self._note(text)

    def _note(self, text: str) -> None:
        cleaned = str(pruned(text))
        if len(self._notes) < MAX_NOTES and cleaned not in self._notes:
            self._notes.append(cleaned)


class _Budget:
    """So many bytes, and no more."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def takes(self, size_bytes: int) -> bool:
        """Whether there is room; it is taken then."""
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True


def received(evidence: SetEvidence, members: Collection[str]) -> SetEvidence:
    """Evidence as another machine sent it, made what the collector makes: about members only, cleaned and bounded.

    Raises:
        DocumentProblem: when it is larger than any collector lets it become.
    """
    if len(encode(evidence)) > MAX_EVIDENCE_BYTES:
        raise DocumentProblem(f"it is larger than {MAX_EVIDENCE_BYTES} bytes")
    return SetEvidence(
        documents={
            path: pruned(document, MAX_SHARDS if is_index(path) else MAX_KEPT_ITEMS)
            for path, document in sorted(evidence.documents.items())
            if path in members
        },
        weights=tuple(clean_weights(facts) for facts in evidence.weights[:MAX_WEIGHTS] if facts.path in members),
        notes=tuple(str(pruned(note)) for note in evidence.notes[:MAX_NOTES]),
        formats={
            path: found for path, found in sorted(evidence.formats.items()) if path in members and found in _FORMATS
        },
        pickles=tuple(clean_pickle(facts) for facts in evidence.pickles[:MAX_PICKLES] if facts.path in members),
        scanner=clean_line(evidence.scanner, MAX_CHARS),
        problems={
            path: problem
            for path, problem in sorted(evidence.problems.items())
            if path in members and problem in PROBLEMS
        },
    )
